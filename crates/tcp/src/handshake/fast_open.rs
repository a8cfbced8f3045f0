//! TCP Fast Open (RFC 7413): data in the SYN, for a client that shows a cookie which only its own address can know.
//!
//! Here is what one connection does with it, and the server's cookies. Whose cookies a client remembers, and how many
//! connections a server lets begin so, is its host's business.
//! What the SYN carried stays queued like all data. If the peer does not acknowledge it, it goes again with the first
//! segments; a SYN that must be repeated is a plain one. So the stream is the same whatever becomes of the attempt.

use core::hash::Hasher;
use core::net::IpAddr;

use base::{Duration, Instant};
use siphasher::sip::SipHasher24;
use wire::tcp::MAX_OPTIONS_LEN;

use super::opening::Cookie;
use crate::connection::Connection;
use crate::input::acceptable::Text;
use crate::segment::{Position, ReceiveBuffer, SegmentIn};
use crate::send::scoreboard::{Record, Scoreboard};
use crate::state::State;
use crate::timer::Timer;

/// The longest data that a SYN carries to a peer of which no MSS is known (RFC 7413 §4.1.3.1).
const DEFAULT_PEER_MSS: u16 = 536;

/// How an active open uses fast open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastOpen {
    /// The peer's cookie; empty: its SYN asks for one and carries no data.
    pub cookie: Cookie,
    /// The MSS that the peer announced when it gave the cookie; 0: unknown.
    pub peer_mss: u16,
    /// The SYN waits until something is queued to go with it.
    pub wait_for_data: bool,
}

/// How far fast open has got on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FastOpenProgress {
    /// Not used.
    #[default]
    Unused = 0,
    /// Our SYN asked for a cookie.
    Asked = 1,
    /// Our SYN carried a cookie, and data if there was any.
    Sent = 2,
    /// The peer's SYN-ACK acknowledged the data of our SYN.
    Acknowledged = 3,
    /// The peer's SYN-ACK did not acknowledge it; it was sent again.
    Refused = 4,
    /// Our SYN had to be repeated; the repetition was a plain one.
    Abandoned = 5,
    /// The peer's SYN carried data, which was taken.
    Taken = 6,
    /// The peer's SYN had a good cookie, but no data that was taken.
    Begun = 7,
}

impl FastOpenProgress {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Unused,
            1 => Self::Asked,
            2 => Self::Sent,
            3 => Self::Acknowledged,
            4 => Self::Refused,
            5 => Self::Abandoned,
            6 => Self::Taken,
            7 => Self::Begun,
            _ => return None,
        })
    }
}

impl Connection {
    /// Opens with a cookie, or asks for one. To be called after [`connect`](Self::connect), before the first poll.
    pub fn use_fast_open(&mut self, request: FastOpen) {
        debug_assert!(self.state == State::SynSent && self.send.nxt == 0, "before the SYN");
        let opening = self.opening_mut();
        opening.held = request.wait_for_data;
        opening.peer_mss = request.peer_mss;
        opening.cookie = Some(request.cookie);
    }

    /// The SYN-ACK brings the client this cookie, in the option that its SYN had: `experimental` or not. To be called after
    /// [`accept`](Self::accept), before the first poll.
    pub fn give_cookie(&mut self, cookie: Cookie, experimental: bool) {
        let opening = self.opening_mut();
        (opening.cookie, opening.experimental) = (Some(cookie), experimental);
    }

    /// Takes the data of the SYN that made this connection: its cookie was found to be good (RFC 7413 §4.2.2). To be
    /// called after [`accept`](Self::accept), before the first poll. The owner has the connection from now on.
    pub fn take_syn_data(&mut self, syn: &SegmentIn<'_>, receive: &mut impl ReceiveBuffer) {
        debug_assert!(self.state == State::SynReceived && self.send.nxt == 0, "before the SYN-ACK");
        self.opening_mut().early = true;
        let room = self.recv.room() as usize;
        let bytes = &syn.payload[..syn.payload.len().min(room)];
        self.fast_open = FastOpenProgress::Begun;
        if !bytes.is_empty() && receive.place(0, bytes).is_ok() {
            self.recv.nxt += bytes.len() as Position;
            self.fast_open = FastOpenProgress::Taken;
        }
        // RFC 7413 §4.2.2: the server may answer before the handshake is over, within its initial window.
        self.open_congestion_window(self.settings.initial_congestion_window);
    }

    /// How far fast open has got.
    pub const fn fast_open(&self) -> FastOpenProgress {
        self.fast_open
    }

    /// The data that goes with a SYN or SYN-ACK whose options take `options_len` bytes; of a SYN that waits for it, how much it
    /// would take.
    pub(crate) fn syn_payload_len(&self, options_len: usize) -> u32 {
        let Some(opening) = &self.opening else { return 0 };
        let mut options_len = options_len;
        let (peer_mss, offered) = match self.state {
            State::SynSent if opening.cookie.as_ref().is_some_and(|cookie| !cookie.is_empty()) => {
                let known = if opening.peer_mss == 0 { DEFAULT_PEER_MSS } else { opening.peer_mss };
                // As Linux: whatever else the SYN might come to carry.
                options_len = MAX_OPTIONS_LEN;
                (known, u64::from(u16::MAX))
            }
            State::SynReceived if opening.early => (self.send.peer_mss, u64::from(self.send.window)),
            State::Closed
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => return 0,
        };
        // RFC 6691 §2: the MSS does not count options, so they are taken off.
        let room = u64::from(self.send.path_mss.min(peer_mss)).saturating_sub(options_len as u64);
        if self.awaits_data() {
            return room as u32;
        }
        (self.send.queued - 1).min(room).min(offered) as u32
    }

    /// The first SYN or SYN-ACK goes out, with so much data.
    pub(crate) fn note_syn_sent(&mut self, now: Instant, data: u32) {
        self.send.scoreboard.push(Record::new(0, 1, now));
        if data > 0 {
            self.send.scoreboard.push(Record::new(1, data, now));
        }
        self.send.nxt = 1 + Position::from(data);
        let Some(opening) = self.opening.as_ref().filter(|_| self.state == State::SynSent) else { return };
        self.fast_open = match &opening.cookie {
            None => FastOpenProgress::Unused,
            Some(cookie) if cookie.is_empty() => FastOpenProgress::Asked,
            Some(_) => FastOpenProgress::Sent,
        };
    }

    /// RFC 7413 §4.1.3.1: a SYN that is repeated carries neither data nor the option, lest something on the way drops it
    /// for either.
    pub(crate) fn abandon_fast_open(&mut self) {
        if let Some(opening) = &mut self.opening {
            opening.cookie = None;
        }
        if matches!(self.fast_open, FastOpenProgress::Asked | FastOpenProgress::Sent) {
            self.fast_open = FastOpenProgress::Abandoned;
        }
    }

    /// The peer's SYN-ACK has acknowledged our SYN, and `ack` says how much of its data. The rest counts as never sent
    /// (RFC 7413 §4.1.3.1): that it was not taken says nothing about congestion, and it may lie beyond the window of which
    /// we hear only now.
    pub(crate) fn on_syn_data_answered(&mut self, ack: Position) {
        if self.send.nxt == 1 {
            return;
        }
        if ack > 1 {
            self.send.una = ack;
            self.fast_open = FastOpenProgress::Acknowledged;
        } else if self.fast_open == FastOpenProgress::Sent {
            self.fast_open = FastOpenProgress::Refused;
        }
        self.send.scoreboard = Scoreboard::new();
        self.send.nxt = self.send.una;
        self.timers.clear(Timer::Retransmit);
    }

    /// Data that came with a SYN-ACK: a server that takes our data may answer so (RFC 7413 §4.2.2). From any other it is not
    /// taken, as on Linux; it is not acknowledged and comes again (RFC 9293 §3.10.7.3, fourth, allows to queue it).
    pub(crate) fn take_text_of_syn_ack(
        &mut self,
        now: Instant,
        segment: &SegmentIn<'_>,
        receive: &mut impl ReceiveBuffer,
    ) {
        let length = (segment.payload.len() as u64).min(self.recv.window());
        if length > 0 && self.fast_open == FastOpenProgress::Acknowledged {
            let text = Text { start: 1, end: 1 + length, skip: 0, fin: None };
            // What is not placed is not acknowledged, and comes again.
            let _ = self.step_7_text(now, segment, &text, receive);
        }
    }
}

/// Whether a client's cookie is one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieVerdict {
    /// Made under the present key.
    Good,
    /// Made under the key before: good, but the client is to have a new one.
    Old,
    /// Not ours, or from a key before that.
    Bad,
}

/// The server's cookies: a keyed hash of both addresses, under a key that changes (RFC 7413 §4.1.2 and §6.1).
#[derive(Clone)]
pub struct FastOpenKeys {
    present: [u8; 16],
    former: Option<[u8; 16]>,
    renew_at: Instant,
    lifetime: Duration,
}

impl core::fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastOpenKeys(secret)")
    }
}

impl FastOpenKeys {
    /// Bytes of a cookie, as in Linux.
    pub const COOKIE_LEN: usize = 8;

    /// Begins with this key, to be renewed every `lifetime`; zero: never.
    pub fn new(now: Instant, key: [u8; 16], lifetime: Duration) -> Self {
        let renew_at = if lifetime == Duration::ZERO { Instant::FAR_FUTURE } else { now + lifetime };
        Self { present: key, former: None, renew_at, lifetime }
    }

    /// Whether the key's time is over: then give it a new one by [`renew`](Self::renew).
    pub fn wants_renewal(&self, now: Instant) -> bool {
        now >= self.renew_at
    }

    /// A new key; cookies of the one before are still good.
    pub fn renew(&mut self, now: Instant, key: [u8; 16]) {
        self.former = Some(core::mem::replace(&mut self.present, key));
        if self.lifetime != Duration::ZERO {
            self.renew_at = now + self.lifetime;
        }
    }

    /// The cookie for a client at `remote` that reaches us at `local`.
    pub fn cookie(&self, local: IpAddr, remote: IpAddr) -> Cookie {
        cookie(&self.present, local, remote)
    }

    /// Judges the cookie that a client shows.
    pub fn check(&self, shown: &[u8], local: IpAddr, remote: IpAddr) -> CookieVerdict {
        if shown == cookie(&self.present, local, remote).as_slice() {
            CookieVerdict::Good
        } else if self.former.is_some_and(|key| shown == cookie(&key, local, remote).as_slice()) {
            CookieVerdict::Old
        } else {
            CookieVerdict::Bad
        }
    }
}

fn cookie(key: &[u8; 16], local: IpAddr, remote: IpAddr) -> Cookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [remote, local] {
        match address {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
    }
    hasher.finish().to_be_bytes().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_bound_to_both_addresses_and_outlive_one_renewal() {
        let (us, client, other) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        let [us, client, other] = [us, client, other].map(IpAddr::from);
        let hour = Duration::from_secs(3600);
        let mut keys = FastOpenKeys::new(Instant::ZERO, [1; 16], hour);
        let shown = keys.cookie(us, client);
        assert_eq!(shown.len(), FastOpenKeys::COOKIE_LEN);
        assert_eq!(keys.check(&shown, us, client), CookieVerdict::Good);
        assert_eq!(keys.check(&shown, us, other), CookieVerdict::Bad);
        assert_eq!(keys.check(&shown, other, client), CookieVerdict::Bad);
        assert_eq!(keys.check(&shown[..4], us, client), CookieVerdict::Bad);
        let later = Instant::ZERO + hour;
        assert!(!keys.wants_renewal(later - Duration::from_millis(1)));
        assert!(keys.wants_renewal(later));
        keys.renew(later, [2; 16]);
        assert!(!keys.wants_renewal(later));
        assert_eq!(keys.check(&shown, us, client), CookieVerdict::Old);
        assert_eq!(keys.check(&keys.cookie(us, client), us, client), CookieVerdict::Good);
        keys.renew(later, [3; 16]);
        assert_eq!(keys.check(&shown, us, client), CookieVerdict::Bad);
    }
}
