//! The Internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.
//!
//! Sums are kept in the machine's own byte order over wide lanes, and turned only at the end (RFC 1071 §2 (B), (C)).
//! A [`Sum`] knows whether it ended in the middle of a word, so that pieces of any length can be joined.
//!
//! Vector instructions are the compiler's: the two loops over many bytes exist twice on x86-64, once for AVX2, and the first
//! call finds out which of them the processor can run.

use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};

use multiversion::multiversion;

use crate::frame::Medium;
use crate::ip::Protocol;
use crate::{ipv4, ipv6, tcp, udp};

/// An unfinished checksum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// One's complement sum in the machine's byte order, not yet folded to 16 bits; always below 2³³.
    lanes: u64,
    /// Whether an odd number of bytes was added, so that the next byte is the low half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self { lanes: 0, odd: false };

    /// The sum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::ZERO.add(bytes)
    }

    /// The sum of the pseudo-header that TCP and UDP checksums cover (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1). `length`
    /// counts the transport header and its payload. Both addresses are of one family.
    pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: Protocol, length: u32) -> Self {
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                return Self::pseudo_header_v4(source, destination, protocol, length);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Self::of(&source.octets()).add(&destination.octets())
            }
            (IpAddr::V4(source), IpAddr::V6(destination)) => {
                Self::of(&source.octets()).add(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V4(destination)) => {
                Self::of(&source.octets()).add(&destination.octets())
            }
        };
        addresses.add_u32(length).add_u16(u16::from(protocol.0))
    }

    /// [`pseudo_header`](Self::pseudo_header) for IPv4.
    pub fn pseudo_header_v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
        length: u32,
    ) -> Self {
        Self::ZERO
            .add_u32(source.to_bits())
            .add_u32(destination.to_bits())
            .add_u32(length)
            .add_u16(u16::from(protocol.0))
    }

    /// Adds `bytes`, which follow what was added before.
    #[must_use]
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "what is added is bytes, and their place counts")]
    pub fn add(self, bytes: &[u8]) -> Self {
        self.append(wide_sum(bytes), bytes.len())
    }

    /// Adds one 16-bit word, in the machine's own value.
    #[must_use]
    pub const fn add_u16(self, word: u16) -> Self {
        self.append(word.to_be() as u64, 2)
    }

    /// Adds two 16-bit words.
    #[must_use]
    pub const fn add_u32(self, words: u32) -> Self {
        self.append(words.to_be() as u64, 4)
    }

    /// Adds four 16-bit words.
    #[must_use]
    #[inline]
    pub const fn add_u64(self, words: u64) -> Self {
        self.append(words.to_be(), 8)
    }

    /// Copies `source` to the start of `destination` and adds it, in one pass over memory.
    ///
    /// # Panics
    /// If `destination` is shorter than `source`.
    #[must_use]
    #[inline]
    pub fn copy_and_add(self, destination: &mut [u8], source: &[u8]) -> Self {
        if source.is_empty() {
            return self; // the second of two slices, as a rule
        }
        if source.len() < LONG {
            return self.copy_and_add_few(destination, source);
        }
        if source.len() >= ALIGNED {
            return self.copy_and_add_aligned(destination, source);
        }
        self.append(long_copy(&mut destination[..source.len()], source), source.len())
    }

    /// Copies what stands in two places, one behind the other, to two others, and adds it.
    ///
    /// # Panics
    /// If there is less room than there are bytes.
    #[must_use]
    #[inline]
    pub fn copy_across(self, to: [&mut [u8]; 2], from: [&[u8]; 2]) -> Self {
        let [first, second] = to;
        if from[1].is_empty() && from[0].len() <= first.len() {
            return self.copy_and_add(first, from[0]); // nearly always
        }
        self.copy_around(first, second, from)
    }

    #[inline(never)]
    fn copy_around(self, first: &mut [u8], second: &mut [u8], [head, tail]: [&[u8]; 2]) -> Self {
        let (near, far) = head.split_at(head.len().min(first.len()));
        let (there, beyond) = tail.split_at(tail.len().min(first.len() - near.len()));
        let (begin, end) = second.split_at_mut(far.len());
        self.copy_and_add(first, near)
            .copy_and_add(&mut first[near.len()..], there)
            .copy_and_add(begin, far)
            .copy_and_add(end, beyond)
    }

    /// Copies what stands in front of the first boundary of a vector in the destination by itself: stores that lie across two
    /// lines of the cache take twice their time.
    #[inline(never)]
    fn copy_and_add_aligned(self, destination: &mut [u8], source: &[u8]) -> Self {
        let in_front = destination.as_ptr().align_offset(VECTOR).min(source.len());
        let (first, rest) = destination[..source.len()].split_at_mut(in_front);
        let (head, tail) = source.split_at(in_front);
        self.copy_and_add_few(first, head).append(long_copy(rest, tail), tail.len())
    }

    #[inline(never)]
    fn copy_and_add_few(self, destination: &mut [u8], source: &[u8]) -> Self {
        destination[..source.len()].copy_from_slice(source);
        self.add(source)
    }

    /// Adds the sum of bytes that follow what was added before, summed on their own.
    #[must_use]
    pub const fn join(self, next: Self) -> Self {
        self.append(next.lanes, next.odd as usize)
    }

    /// The sum folded to 16 bits, not complemented: what stands in the checksum field of a partial checksum.
    pub const fn fold(self) -> u16 {
        let mut sum = self.lanes;
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        (sum as u16).to_be()
    }

    /// The checksum: what goes into the field, or zero when the field was part of what was added and was right.
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// Adds lanes that were summed over `len` bytes. Swapping the bytes of every word, which an odd position asks
    /// for, is a rotation by eight bits (RFC 1071 §2 (B)): 2¹⁶ - 1 divides 2⁶⁴ - 1.
    const fn append(self, lanes: u64, len: usize) -> Self {
        let lanes = if self.odd { lanes.rotate_left(8) } else { lanes };
        let (sum, carry) = self.lanes.overflowing_add(lanes);
        // Below 2³³ after this, so the carry cannot overflow it.
        let folded = (sum & 0xffff_ffff) + (sum >> 32) + carry as u64;
        Self { lanes: folded, odd: self.odd ^ (len & 1 != 0) }
    }
}

/// Whether the checksum in a TCP segment is right.
pub fn verify_tcp(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    Sum::pseudo_header(source, destination, Protocol::TCP, segment.len() as u32).add(segment).finish() == 0
}

/// The checksum after one 16-bit word that it covers changed from `old` to `new` (RFC 1624 §3, equation 3).
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !Sum::ZERO.add_u16(!checksum).add_u16(!old).add_u16(new).fold()
}

/// Where a frame's transport checksum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The transport protocol, TCP or UDP.
    pub protocol: Protocol,
    /// Where the transport header starts in the frame, and with it what the checksum covers.
    pub start: usize,
    /// Where the checksum field stands in the transport header.
    pub offset: usize,
}

/// Finds the transport checksum of a frame: `None` if it has none, since it carries something else than TCP or UDP or is
/// a later fragment. The frame may be cut short after its IP header.
pub fn locate(frame: &[u8], medium: Medium) -> Option<Place> {
    let link = medium.header_len();
    let ip = frame.get(link..)?;
    let (protocol, header_len) = match ip.first()? >> 4 {
        4 => {
            let fixed = ip.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let header_len = usize::from(fixed[0] & 0x0f) * 4;
            let is_later_fragment = fixed[6] & 0x1f != 0 || fixed[7] != 0;
            if header_len < ipv4::HEADER_LEN || is_later_fragment {
                return None;
            }
            (Protocol(fixed[9]), header_len)
        }
        6 => (Protocol(*ip.get(6)?), ipv6::HEADER_LEN),
        _ => return None,
    };
    let offset = match protocol {
        Protocol::TCP => tcp::CHECKSUM_OFFSET,
        Protocol::UDP => udp::CHECKSUM_OFFSET,
        _ => return None,
    };
    Some(Place { protocol, start: link + header_len, offset })
}

/// Completes the partial checksum of a whole frame: its field holds the pseudo-header's sum. A place that is not within
/// the frame leaves it as it is.
pub fn complete(frame: &mut [u8], place: Place) {
    let Some(covered) = frame.get_mut(place.start..) else { return };
    // All ones are as good as zero for TCP, and UDP asks for them (RFC 768).
    let checksum = udp::transmitted(Sum::of(covered).finish());
    if let Some(field) = covered.get_mut(place.offset..place.offset + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// From so many bytes on, wide lanes are worth their while.
const LONG: usize = 64;
/// From so many on, it is worth while to align what is copied to.
const ALIGNED: usize = 4096;
/// Bytes of a vector of AVX2, and words in it.
const VECTOR: usize = 32;
const LANES: usize = VECTOR / 8;
/// Bytes that are copied at a time.
const BLOCK: usize = 4 * VECTOR;

/// The one's complement sum of `bytes` as words in the machine's byte order; bytes beyond the last whole word count as
/// if zeroes followed.
#[inline]
fn wide_sum(bytes: &[u8]) -> u64 {
    if bytes.len() < LONG { short_sum(bytes) } else { long_sum(bytes) }
}

/// The same over wide lanes: the compiler makes vector instructions of the loop, three and a load for each vector.
///
/// It adds up the words, modulo 2⁶⁴, and their upper halves: see [`lower_and_upper`].
#[multiversion(targets("x86_64+avx2"))]
fn long_sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut whole, mut upper) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        whole = whole.wrapping_add(word);
        upper = upper.wrapping_add(word >> 32);
    }
    lower_and_upper(whole, upper) + short_sum(rest)
}

/// Copies `source` to `destination`, which is as long, and sums it as [`long_sum`] does: what was loaded is stored and added.
/// In cache this takes hardly longer than the copy alone, where summing and then copying, block by block, takes the sum of both.
#[multiversion(targets("x86_64+avx2"))]
fn long_copy(destination: &mut [u8], source: &[u8]) -> u64 {
    let destination = &mut destination[..source.len()];
    let (mut whole, mut upper) = ([0; LANES], [0; LANES]);
    let (blocks, from) = source.as_chunks::<BLOCK>();
    let (to_blocks, to) = destination.as_chunks_mut::<BLOCK>();
    for (to, block) in to_blocks.iter_mut().zip(blocks) {
        let block = *block;
        *to = block;
        let (vectors, _) = block.as_chunks::<VECTOR>();
        for vector in vectors {
            add_lanes(vector, &mut whole, &mut upper);
        }
    }
    // No loop, of whose copies the compiler would make a call of `memcpy`.
    let (pairs, from) = from.as_chunks::<{ 2 * VECTOR }>();
    let (to_pairs, to) = to.as_chunks_mut::<{ 2 * VECTOR }>();
    if let ([pair, ..], [to, ..]) = (pairs, to_pairs) {
        let pair = *pair;
        *to = pair;
        let (vectors, _) = pair.as_chunks::<VECTOR>();
        add_lanes(&vectors[0], &mut whole, &mut upper);
        add_lanes(&vectors[1], &mut whole, &mut upper);
    }
    let (vectors, from) = from.as_chunks::<VECTOR>();
    let (to_vectors, to) = to.as_chunks_mut::<VECTOR>();
    if let ([vector, ..], [to, ..]) = (vectors, to_vectors) {
        let vector = *vector;
        *to = vector;
        add_lanes(&vector, &mut whole, &mut upper);
    }
    // The compiler is not to see what becomes of the lanes: it would permute every vector of the loop into the order in which they
    // are added up here.
    let (whole, upper) = (black_box(whole), black_box(upper));
    let sum = |lanes: [u64; LANES]| lanes.into_iter().fold(0, u64::wrapping_add);
    lower_and_upper(sum(whole), sum(upper)) + short_copy(to, from)
}

/// Adds a vector's words to `whole`, and their upper halves to `upper`.
#[inline(always)]
fn add_lanes(vector: &[u8; VECTOR], whole: &mut [u64; LANES], upper: &mut [u64; LANES]) {
    let (words, _) = vector.as_chunks::<8>();
    for lane in 0..LANES {
        let word = u64::from_ne_bytes(words[lane]);
        whole[lane] = whole[lane].wrapping_add(word);
        upper[lane] = upper[lane].wrapping_add(word >> 32);
    }
}

/// Copies and sums what is left behind the last vector, in at most two steps but for the last few bytes.
#[inline(always)]
fn short_copy(to: &mut [u8], from: &[u8]) -> u64 {
    let mut sum = 0;
    let (pairs, from) = from.as_chunks::<16>();
    let (to_pairs, to) = to.as_chunks_mut::<16>();
    if let ([pair, ..], [to, ..]) = (pairs, to_pairs) {
        *to = *pair;
        let (words, _) = pair.as_chunks::<8>();
        sum += halves(words[0]) + halves(words[1]);
    }
    let (words, from) = from.as_chunks::<8>();
    let (to_words, to) = to.as_chunks_mut::<8>();
    if let ([word, ..], [to, ..]) = (words, to_words) {
        *to = *word;
        sum += halves(*word);
    }
    if !from.is_empty() {
        to.copy_from_slice(from);
        sum += short_sum(from);
    }
    sum
}

/// The sum of all halves of words, of which `whole` is the sum modulo 2⁶⁴ and `upper` that of the upper halves. What the
/// lower halves come to follows from the two, exactly, since it is below 2⁶⁴: so none has to be cut out of its word.
#[inline]
const fn lower_and_upper(whole: u64, upper: u64) -> u64 {
    whole.wrapping_sub(upper << 32) + upper
}

/// The same word by word.
#[inline]
fn short_sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum, word| sum + halves(*word));
    let (words, rest) = rest.as_chunks::<4>();
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
    let last = match *rest {
        [] => return sum,
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c, ..] => [a, b, c, 0],
    };
    sum + u64::from(u32::from_ne_bytes(last))
}

/// The sum of a word's halves.
#[inline]
const fn halves(word: [u8; 8]) -> u64 {
    let word = u64::from_ne_bytes(word);
    (word & 0xffff_ffff) + (word >> 32)
}
