//! What a connection keeps only while it is being opened, and only where it is opened in a special way: by fast open
//! (`fast_open`) or with its acceptance put off (`TCP_DEFER_ACCEPT`).

use arrayvec::ArrayVec;
use base::{Duration, Instant};

use crate::config::Config;
use crate::connection::Connection;
use crate::segment::SegmentIn;
use crate::send::scoreboard::Record;
use crate::state::State;

/// A fast-open cookie: 4 to 16 bytes (RFC 7413 §4.1.1). An empty one asks for a cookie.
pub type Cookie = ArrayVec<u8, 16>;

/// Boxed, and gone once the connection is established.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// The fast-open option of our SYN or SYN-ACK, the first time it is sent.
    pub(crate) cookie: Option<Cookie>,
    /// It goes in the experimental option.
    pub(crate) experimental: bool,
    /// The MSS that the peer announced when it gave the cookie.
    pub(crate) peer_mss: u16,
    /// The SYN waits for the first bytes.
    pub(crate) held: bool,
    /// The SYN's data was taken: data flows before the handshake is over (RFC 7413 §4.2.2).
    pub(crate) early: bool,
    /// A bare acknowledgement opens the connection only after so many SYN-ACKs.
    pub(crate) deferred_until: u8,
    /// It has come, and was put off.
    pub(crate) deferred: bool,
}

impl Connection {
    /// The opening's own state, to change it.
    pub(crate) fn opening_mut(&mut self) -> &mut Opening {
        self.opening.get_or_insert_default()
    }

    /// An active open waits for its first bytes: its SYN shall carry them.
    pub fn awaits_data(&self) -> bool {
        self.state == State::SynSent
            && self.send.nxt == 0
            && self.send.queued == 1
            && !self.send.fin_queued
            && self.opening.as_ref().is_some_and(|opening| opening.held)
    }

    /// A passive open that has taken the SYN's data: its owner has it before the handshake is over.
    #[inline]
    pub fn is_early(&self) -> bool {
        self.state == State::SynReceived && self.opening.as_ref().is_some_and(|opening| opening.early)
    }

    /// Our SYN, or SYN-ACK, is lost and goes out again.
    pub(crate) fn syn_is_lost(&self) -> bool {
        self.send.scoreboard.next_lost().is_some_and(|lost| lost.start == 0)
    }

    /// Takes our SYN, or SYN-ACK, if it is to go out again.
    pub(crate) fn retransmit_syn(&mut self, now: Instant) -> Option<Record> {
        if self.syn_is_lost() { self.send.scoreboard.retransmit_lost(1, now) } else { None }
    }

    /// The option that the peer's bare acknowledgement does not open the connection (`TCP_DEFER_ACCEPT`).
    pub(crate) fn defer_acceptance(&mut self, config: &Config) {
        let retransmissions = retransmissions_within(config.defer_accept, config.rto_initial, config.rto_max);
        if retransmissions > 0 {
            self.opening_mut().deferred_until = retransmissions;
        }
    }

    /// Whether this acknowledgement of our SYN-ACK is put off: it brings nothing, and the time is not over.
    pub(crate) fn defers(&mut self, segment: &SegmentIn<'_>) -> bool {
        let timeouts = self.recovery.timeouts;
        let Some(opening) = &mut self.opening else { return false };
        if opening.early || segment.sequence_len() > 0 || timeouts >= opening.deferred_until {
            return false;
        }
        opening.deferred = true;
        true
    }

    /// How many SYN-ACKs go out at least: those of the time for which the acceptance is put off.
    pub(crate) fn deferred_retries(&self) -> u8 {
        self.opening.as_ref().filter(|opening| opening.deferred).map_or(0, |opening| opening.deferred_until)
    }

    /// While we wait for data only, the SYN-ACK is not said again, except for a last chance at the end (as Linux does).
    pub(crate) fn repeats_syn(&self) -> bool {
        self.deferred_retries().saturating_sub(1) <= self.recovery.timeouts
    }
}

/// How many retransmissions a time has room for, as Linux counts (`secs_to_retrans`).
fn retransmissions_within(time: Duration, first: Duration, most: Duration) -> u8 {
    if time == Duration::ZERO {
        return 0;
    }
    let (mut count, mut timeout, mut period) = (1, first, first);
    while time > period && count < u8::MAX {
        count += 1;
        timeout = (timeout * 2).min(most);
        period += timeout;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_retransmissions_as_linux_does() {
        let count = |seconds| {
            retransmissions_within(
                Duration::from_secs(seconds),
                Duration::from_secs(1),
                Duration::from_secs(120),
            )
        };
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 15, 30, 600].map(count), [0, 1, 2, 2, 3, 3, 4, 4, 5, 11]);
    }
}
