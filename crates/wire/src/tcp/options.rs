//! The options of a TCP header.

use core::fmt;

use arrayvec::ArrayVec;
use base::SeqNumber;

use super::MAX_OPTIONS_LEN;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const USER_TIMEOUT: u8 = 28;
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;

/// What the fast-open option is called among the experimental ones that share a kind (RFC 7413 §10, RFC 6994 §3).
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// What the timestamps option looks like in nearly every segment (RFC 7323 appendix A): two NOPs, kind, length.
const ALIGNED_TIMESTAMPS: [u8; 4] = [NOP, NOP, TIMESTAMPS, 10];

/// The timestamps option (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock as the sender last saw it; of meaning with ACK only.
    pub echo: u32,
}

/// A range of sequence space that the receiver has, out of order (RFC 2018 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first sequence number in it.
    pub start: SeqNumber,
    /// The first sequence number after it.
    pub end: SeqNumber,
}

/// The options of a segment.
///
/// There is room for 40 bytes. What does not fit is left out when emitting, in this order: SACK blocks from the last,
/// then the fast-open cookie. The others always fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size (RFC 9293 §3.2).
    pub mss: Option<u16>,
    /// Window scale as it stands (RFC 7323 §2.2); values above 14 are the receiver's to clamp.
    pub window_scale: Option<u8>,
    /// User timeout as it stands: granularity bit and 15 bits (RFC 5482 §3).
    pub user_timeout: Option<u16>,
    /// SACK permitted (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks, the most recent first.
    pub sack: ArrayVec<SackBlock, 4>,
    /// Fast-open cookie (RFC 7413 §4.1.1); an empty one asks for a cookie.
    pub fast_open: Option<ArrayVec<u8, 16>>,
    /// The cookie comes, or goes, in the option that was used before fast open had a number of its own.
    pub fast_open_experimental: bool,
}

impl Options {
    /// Reads the options of a header. Never fails: what is malformed ends the reading, what is unknown is skipped
    /// (RFC 9293 §3.1, MUST-6 and MUST-7).
    #[inline]
    pub fn parse(bytes: &[u8]) -> Self {
        if let Some((&ALIGNED_TIMESTAMPS, body)) = bytes.split_first_chunk::<4>()
            && let Ok(body) = <&[u8; 8]>::try_from(body)
        {
            return Self { timestamps: Some(Timestamps::from_bytes(body)), ..Self::default() };
        }
        if bytes.is_empty() {
            return Self::default();
        }
        Self::parse_any(bytes)
    }

    /// Length as emitted: a multiple of four, at most 40.
    #[inline]
    pub fn emitted_len(&self) -> usize {
        let layout = self.layout();
        layout.fixed + layout.fast_open + layout.sack
    }

    /// Writes the options; `out` is exactly as long as [`emitted_len`](Self::emitted_len) says.
    ///
    /// # Panics
    /// If `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let layout = self.layout();
        let mut writer = Writer { out, at: 0 };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            writer.put(&[MSS, 4, high, low]);
        }
        match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => writer.put(&[SACK_PERMITTED, 2, TIMESTAMPS, 10]),
            (false, Some(_)) => writer.put(&ALIGNED_TIMESTAMPS),
            (true, None) => writer.put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, None) => {}
        }
        if let Some(timestamps) = self.timestamps {
            writer.put(&timestamps.value.to_be_bytes());
            writer.put(&timestamps.echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            writer.put(&[NOP, WINDOW_SCALE, 3, scale]);
        }
        if let Some(timeout) = self.user_timeout {
            let [high, low] = timeout.to_be_bytes();
            writer.put(&[USER_TIMEOUT, 4, high, low]);
        }
        if let Some(cookie) = &self.fast_open
            && layout.fast_open > 0
        {
            let len = self.fast_open_head() + cookie.len();
            for _ in len..layout.fast_open {
                writer.put(&[NOP]);
            }
            if self.fast_open_experimental {
                let [high, low] = FAST_OPEN_EXPERIMENT;
                writer.put(&[EXPERIMENT, len as u8, high, low]);
            } else {
                writer.put(&[FAST_OPEN, len as u8]);
            }
            writer.put(cookie);
        }
        if layout.sack > 0 {
            writer.put(&[NOP, NOP, SACK, (layout.sack - 2) as u8]);
            for block in self.sack.iter().take((layout.sack - 4) / 8) {
                writer.put(&block.start.0.to_be_bytes());
                writer.put(&block.end.0.to_be_bytes());
            }
        }
    }

    /// Length of the fast-open option without its cookie.
    #[inline]
    fn fast_open_head(&self) -> usize {
        if self.fast_open_experimental { 4 } else { 2 }
    }

    #[inline]
    fn layout(&self) -> Layout {
        let mut fixed = 0;
        fixed += if self.mss.is_some() { 4 } else { 0 };
        fixed += match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        fixed += if self.window_scale.is_some() { 4 } else { 0 };
        fixed += if self.user_timeout.is_some() { 4 } else { 0 };
        let mut room = MAX_OPTIONS_LEN - fixed;
        let head = self.fast_open_head();
        let fast_open = self.fast_open.as_ref().map_or(0, |cookie| (head + cookie.len()).next_multiple_of(4));
        let fast_open = if fast_open <= room { fast_open } else { 0 };
        room -= fast_open;
        let blocks = self.sack.len().min(room.saturating_sub(4) / 8);
        let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        Layout { fixed, fast_open, sack }
    }

    fn parse_any(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        let mut rest = bytes;
        while let Some((&kind, after)) = rest.split_first() {
            match kind {
                END => break,
                NOP => rest = after,
                _ => {
                    // The length counts kind and length themselves. One that is too small would not move on and one
                    // that is too large is a lie: with either the place of the next option is unknown.
                    let Some(&length) = after.first() else { break };
                    let Some(body) = rest.get(2..usize::from(length)) else { break };
                    options.take(kind, body);
                    rest = &rest[usize::from(length)..];
                }
            }
        }
        options
    }

    /// Takes one option; a known one of an impossible length is ignored.
    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[scale]) => self.window_scale = Some(scale),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (USER_TIMEOUT, &[high, low]) => self.user_timeout = Some(u16::from_be_bytes([high, low])),
            (TIMESTAMPS, body) => {
                if let Ok(body) = <&[u8; 8]>::try_from(body) {
                    self.timestamps = Some(Timestamps::from_bytes(body));
                }
            }
            (SACK, body) => {
                let (blocks, rest) = body.as_chunks::<8>();
                if rest.is_empty() {
                    self.sack = blocks.iter().take(4).map(SackBlock::from_bytes).collect();
                }
            }
            (FAST_OPEN, body) => {
                if let Ok(cookie) = ArrayVec::try_from(body) {
                    self.fast_open = Some(cookie);
                    self.fast_open_experimental = false;
                }
            }
            (EXPERIMENT, body) => {
                if let Some(cookie) = body.strip_prefix(&FAST_OPEN_EXPERIMENT)
                    && let Ok(cookie) = ArrayVec::try_from(cookie)
                    && self.fast_open.is_none()
                {
                    self.fast_open = Some(cookie);
                    self.fast_open_experimental = true;
                }
            }
            _ => {}
        }
    }
}

impl fmt::Display for Options {
    /// As in `<mss 1460,sackOK,TS val 1 ecr 0,wscale 7>`; nothing if there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        let mut separator = '<';
        let mut item = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let answer = write!(f, "{separator}{text}");
            separator = ',';
            answer
        };
        if let Some(mss) = self.mss {
            item(f, format_args!("mss {mss}"))?;
        }
        if self.sack_permitted {
            item(f, format_args!("sackOK"))?;
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            item(f, format_args!("TS val {value} ecr {echo}"))?;
        }
        if let Some(scale) = self.window_scale {
            item(f, format_args!("wscale {scale}"))?;
        }
        if let Some(timeout) = self.user_timeout {
            let unit = if timeout & 0x8000 != 0 { "min" } else { "s" };
            item(f, format_args!("uto {} {unit}", timeout & 0x7fff))?;
        }
        if let Some(cookie) = &self.fast_open {
            item(f, format_args!("tfo cookie of {}", cookie.len()))?;
        }
        for SackBlock { start, end } in &self.sack {
            item(f, format_args!("sack {}:{}", start.0, end.0))?;
        }
        f.write_str(">")
    }
}

impl Timestamps {
    #[inline]
    fn from_bytes(bytes: &[u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = *bytes;
        Self { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
    }
}

impl SackBlock {
    fn from_bytes(bytes: &[u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = *bytes;
        Self {
            start: SeqNumber(u32::from_be_bytes([a, b, c, d])),
            end: SeqNumber(u32::from_be_bytes([e, f, g, h])),
        }
    }
}

/// Bytes that each part of the options takes, padding included.
struct Layout {
    fixed: usize,
    fast_open: usize,
    sack: usize,
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}
