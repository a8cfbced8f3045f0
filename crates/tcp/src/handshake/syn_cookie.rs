//! SYN cookies: a handshake that costs the server no memory before its last segment (RFC 4987 §3.6).
//!
//! The initial sequence number of the SYN-ACK is a keyed hash of the connection, with the time and the client's MSS in
//! it; whoever acknowledges it has received it. What the client's SYN offered besides is kept in the lowest six bits of
//! our timestamp, which the client echoes, exactly as Linux does it; without timestamps only the MSS survives.
//! The client's data that follows goes on as usual.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use base::{Instant, SeqNumber};
use siphasher::sip::SipHasher24;
use wire::tcp::{Flags, Header, Options, Timestamps};

use crate::config::{AccurateEcn, Config};
use crate::connection::Connection;
use crate::segment::{Ecn, SegmentIn, SegmentOut};
use crate::state::Event;

/// The MSS values that a cookie can tell, for the usual MTUs up to jumbo frames; the largest that fits is taken.
const MSS_TABLE: [u16; 8] = [536, 1220, 1300, 1400, 1440, 1460, 4312, 8960];
/// The clock of the cookies: a tick of 64 s.
const TICK_MS: u64 = 64_000;
/// A cookie is good in its own tick and the next.
const MAX_AGE: u32 = 2;
/// The cookie's lower bits: a hash, the topmost of them mixed with the index of the MSS.
const DATA_MASK: u32 = (1 << 24) - 1;
const CHECK_BITS: u32 = 21;
const _: () = assert!(MSS_TABLE.len() << CHECK_BITS == 1 << 24);
/// The bits of the timestamp that hold options: the window's scale (15: none), SACK, ECN.
const OPTION_BITS: u32 = 6;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
const NO_SCALE: u32 = 15;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;

/// How long after its SYN-ACK a cookie can still be good.
pub const COOKIE_LIFETIME: base::Duration = base::Duration::from_millis(MAX_AGE as u64 * TICK_MS);

/// The secret of a stack's SYN cookies.
#[derive(Clone)]
pub struct SynCookies {
    key: [u8; 16],
}

impl core::fmt::Debug for SynCookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SynCookies(secret)")
    }
}

/// The ends of a connection, and the offset of its timestamps.
#[derive(Clone, Copy, Debug)]
pub struct CookieEnds {
    /// Our end.
    pub local: SocketAddr,
    /// The client's.
    pub remote: SocketAddr,
    /// As [`crate::IsnGenerator::timestamp_offset`] gives it.
    pub timestamp_offset: u32,
}

impl SynCookies {
    /// Cookies under a random key.
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The SYN-ACK that answers `syn`; nothing is remembered of it.
    pub fn answer(&self, now: Instant, config: &Config, ends: CookieEnds, syn: &SegmentIn<'_>) -> SegmentOut {
        let offered = &syn.header.options;
        // Linux: without timestamps there is no place for the other options, so they are not agreed to.
        let stamped = config.timestamps && offered.timestamps.is_some();
        let config = Config {
            timestamps: stamped,
            window_scaling: config.window_scaling && stamped,
            selective_acks: config.selective_acks && stamped,
            ecn: (config.ecn || config.accept_ecn) && stamped,
            accept_ecn: false,
            // How the SYN came cannot be told again: whoever asks for accurate feedback gets the classic one.
            accurate_ecn: AccurateEcn::Off,
            defer_accept: base::Duration::ZERO,
            ..config.clone()
        };
        let announced = offered.mss.unwrap_or(MSS_TABLE[0]);
        let index = MSS_TABLE.iter().rposition(|&mss| mss <= announced).unwrap_or(0) as u32;
        let isn = self.sequence_number(ends, syn.header.seq, tick(now), index);
        let CookieEnds { local, remote, timestamp_offset } = ends;
        let mut connection =
            Connection::accept(now, &config, local, remote, SeqNumber(isn), timestamp_offset, syn);
        let (sack, ecn) = (connection.settings.sack, connection.settings.ecn);
        let mut answer = connection.build_syn(now, 0);
        if let Some(stamps) = &mut answer.header.options.timestamps {
            let scale = offered.window_scale.filter(|_| config.window_scaling);
            let scale = scale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
            let bits = scale | if sack { SACK_BIT } else { 0 } | if ecn { ECN_BIT } else { 0 };
            stamps.value = with_options(stamps.value.wrapping_sub(timestamp_offset), bits)
                .wrapping_add(timestamp_offset);
        }
        answer
    }

    /// The connection that `ack` opens, if it acknowledges a SYN-ACK of ours from a short while ago. It is established;
    /// give it the segment.
    pub fn open(
        &self,
        now: Instant,
        config: &Config,
        ends: CookieEnds,
        ack: &SegmentIn<'_>,
    ) -> Option<Connection> {
        let header = &ack.header;
        let (isn, irs) = (header.ack - 1, header.seq - 1);
        let mss = self.check(ends, isn, irs, tick(now))?;
        let mut syn = Header {
            src_port: header.src_port,
            dst_port: header.dst_port,
            seq: irs,
            flags: Flags::SYN,
            window: header.window,
            options: Options { mss: Some(mss), ..Options::default() },
            ..Header::default()
        };
        if let Some(stamps) = header.options.timestamps {
            restore_options(&mut syn, config, stamps, stamps.echo.wrapping_sub(ends.timestamp_offset))?;
        }
        let syn = SegmentIn { header: syn, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
        let CookieEnds { local, remote, timestamp_offset } = ends;
        let mut connection = Connection::accept(now, config, local, remote, isn, timestamp_offset, &syn);
        connection.on_cookie_acknowledged(now);
        Some(connection)
    }

    fn sequence_number(&self, ends: CookieEnds, client: SeqNumber, tick: u32, mss_index: u32) -> u32 {
        let low = self.hash(ends, 1, tick, client) & DATA_MASK ^ mss_index << CHECK_BITS;
        self.hash(ends, 0, 0, client).wrapping_add(tick << 24).wrapping_add(low)
    }

    fn check(&self, ends: CookieEnds, isn: SeqNumber, client: SeqNumber, tick: u32) -> Option<u16> {
        let word = isn.0.wrapping_sub(self.hash(ends, 0, 0, client));
        let age = tick.wrapping_sub(word >> 24) & 0xff;
        if age >= MAX_AGE {
            return None;
        }
        let data = (word ^ self.hash(ends, 1, tick.wrapping_sub(age), client)) & DATA_MASK;
        if data & ((1 << CHECK_BITS) - 1) != 0 {
            return None;
        }
        MSS_TABLE.get((data >> CHECK_BITS) as usize).copied()
    }

    fn hash(&self, ends: CookieEnds, purpose: u8, tick: u32, client: SeqNumber) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose);
        for end in [ends.local, ends.remote] {
            match end.ip() {
                IpAddr::V4(ip) => hasher.write(&ip.octets()),
                IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
            hasher.write(&end.port().to_be_bytes());
        }
        hasher.write(&tick.to_be_bytes());
        hasher.write(&client.0.to_be_bytes());
        hasher.finish() as u32
    }
}

fn tick(now: Instant) -> u32 {
    (now.as_millis() / TICK_MS) as u32
}

/// The newest timestamp not after `clock` with these lowest bits.
fn with_options(clock: u32, bits: u32) -> u32 {
    let stamp = clock & !OPTION_MASK | bits;
    if stamp > clock { stamp.wrapping_sub(1 << OPTION_BITS) } else { stamp }
}

/// Puts back into the SYN what it had offered, as the echoed clock tells. `None`: we never agree to that.
fn restore_options(syn: &mut Header, config: &Config, stamps: Timestamps, clock: u32) -> Option<()> {
    let (scale, sack, ecn) = (clock & NO_SCALE, clock & SACK_BIT != 0, clock & ECN_BIT != 0);
    if !config.timestamps || (sack && !config.selective_acks) || (ecn && !config.ecn && !config.accept_ecn) {
        return None;
    }
    if scale != NO_SCALE && !config.window_scaling {
        return None;
    }
    syn.options.timestamps = Some(Timestamps { value: stamps.value, echo: 0 });
    syn.options.sack_permitted = sack;
    syn.options.window_scale = (scale != NO_SCALE).then_some(scale as u8);
    if ecn {
        syn.flags |= Flags::ECE | Flags::CWR;
    }
    Some(())
}

impl Connection {
    /// The SYN-ACK that nobody remembers was acknowledged. No round trip is known: the echoed timestamp is not exact.
    fn on_cookie_acknowledged(&mut self, now: Instant) {
        self.send.una = 1;
        self.send.nxt = 1;
        self.recv.right_edge = 1 + u64::from(self.syn_window());
        self.open_congestion_window(self.settings.initial_congestion_window);
        self.begin_mtu_search(now);
        self.on_event(Event::SynAcknowledged);
        self.on_established(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Duration;

    fn ends() -> CookieEnds {
        CookieEnds {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:5000".parse().unwrap(),
            timestamp_offset: 0xfff0_0000,
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_tick_and_the_next_and_for_nobody_else() {
        let cookies = SynCookies::new([3; 16]);
        for (index, mss) in MSS_TABLE.iter().enumerate() {
            let isn = SeqNumber(cookies.sequence_number(ends(), SeqNumber(77), 255, index as u32));
            assert_eq!(cookies.check(ends(), isn, SeqNumber(77), 255), Some(*mss));
            assert_eq!(cookies.check(ends(), isn, SeqNumber(77), 256), Some(*mss));
            assert_eq!(cookies.check(ends(), isn, SeqNumber(77), 257), None);
            assert_eq!(cookies.check(ends(), isn, SeqNumber(77), 254), None);
            assert_eq!(cookies.check(ends(), isn, SeqNumber(78), 255), None);
            assert_eq!(cookies.check(ends(), isn + 1, SeqNumber(77), 255), None);
            let other = CookieEnds { remote: "10.0.0.3:5000".parse().unwrap(), ..ends() };
            assert_eq!(cookies.check(other, isn, SeqNumber(77), 255), None);
            assert_eq!(SynCookies::new([4; 16]).check(ends(), isn, SeqNumber(77), 255), None);
        }
        assert_eq!(COOKIE_LIFETIME, Duration::from_secs(128));
    }

    #[test]
    fn guesses_do_not_get_in() {
        let cookies = SynCookies::new([3; 16]);
        let hits = (0..1_000_000u32)
            .filter(|guess| {
                let isn = SeqNumber(guess.wrapping_mul(0x9e37_79b9));
                cookies.check(ends(), isn, SeqNumber(1), 9).is_some()
            })
            .count();
        // Sixteen of 2³² numbers are good.
        assert!(hits <= 1, "{hits} of a million guesses");
    }

    #[test]
    fn the_options_take_the_newest_clock_that_is_not_ahead() {
        for clock in [0u32, 5, 63, 64, 1_000_000, u32::MAX] {
            for bits in 0..64 {
                let stamp = with_options(clock, bits);
                assert_eq!(stamp & OPTION_MASK, bits);
                let behind = clock.wrapping_sub(stamp);
                assert!(behind < 64, "{clock} {bits}: {behind}");
            }
        }
    }
}
