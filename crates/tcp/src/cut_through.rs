//! Both ends of a connection on one stack: bytes go from one's send buffer straight to the other's receive buffer.
//!
//! Such a connection is opened by TCP's own handshake. Once both ends are ESTABLISHED and nothing is in flight
//! ([`Connection::can_cut_through`]) the stack that has both joins them ([`join`]) and from then on [`carry`] takes the
//! place of segments: what is queued at one end is placed at the other, as far as its window allows, and counts as
//! acknowledged at once; a FIN follows the last byte; a reset overtakes everything. The sequence spaces of both ends go on
//! as if segments had carried it, so a snapshot of such an end is that of any connection, and restored ends go on by
//! segments.
//!
//! Left out, because there is nobody who could be lost or slow on the way: retransmission, congestion control, pacing,
//! Nagle's algorithm, delayed acknowledgements, probes of closed windows, keepalive. TIME-WAIT and FIN-WAIT-2 are as ever.

use base::Instant;

use crate::connection::Connection;
use crate::error::Error;
use crate::limited::Limit;
use crate::segment::{ReceiveBuffer, SendBuffer};
use crate::state::{Event, State};
use crate::timer::{Stamp, Timer};

/// What [`carry`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Payload bytes.
    pub bytes: u64,
    /// Why it ended.
    pub stop: Stop,
}

/// Why [`carry`] ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// Nothing is left to be carried.
    #[default]
    Done,
    /// As many bytes as it was allowed have been carried, and there are more.
    Budget,
    /// The receiver's window is closed: its application has to read.
    Window,
    /// The receive buffer has no memory at present: to be tried again later.
    NoMemory,
    /// The ends are parted: one of them was reset.
    Parted,
}

/// Joins two ends, both of which [can be](Connection::can_cut_through).
pub fn join(one: &mut Connection, other: &mut Connection) {
    one.begin_cut_through();
    other.begin_cut_through();
}

/// Carries what is queued at `from` to `to`, at most `most` bytes, and a FIN or a reset if it is due. For the other way it
/// is called with the ends exchanged.
pub fn carry(
    now: Instant,
    from: &mut Connection,
    to: &mut Connection,
    bytes: &impl SendBuffer,
    place: &mut impl ReceiveBuffer,
    most: u64,
) -> Carried {
    debug_assert!(from.cut_through && to.cut_through, "only ends that were joined");
    if from.state == State::Closed {
        if core::mem::take(&mut from.pending.reset) {
            to.on_peer_reset();
            return Carried { bytes: 0, stop: Stop::Parted };
        }
        return Carried::default();
    }
    if !from.state.sends_data() || from.send.nxt >= from.send.end() {
        return Carried::default();
    }
    if to.state == State::Closed {
        // It has gone without a word: as segments would be, this is answered with a reset.
        from.on_peer_reset();
        return Carried { bytes: 0, stop: Stop::Parted };
    }
    if let Some(urgent) = &from.urgent
        && urgent.up > from.send.nxt
        && to.state.receives_data()
        && !to.orphaned
    {
        to.note_urgent_mark(urgent.up - 1, place);
    }
    let carried = carry_bytes(from, to, bytes, place, most);
    if carried.bytes > 0 {
        note_progress(now, from, to);
    }
    if carried.stop == Stop::Done && from.send.fin_queued {
        carry_fin(now, from, to);
    }
    from.note_cut_through_limit(now, carried.stop);
    carried
}

fn carry_bytes(
    from: &mut Connection,
    to: &mut Connection,
    bytes: &impl SendBuffer,
    place: &mut impl ReceiveBuffer,
    most: u64,
) -> Carried {
    let queued = from.send.queued.saturating_sub(from.send.nxt);
    if queued == 0 {
        return Carried::default();
    }
    if to.orphaned {
        // Nobody will read it (RFC 1122 §4.2.2.13): both ends know at once.
        to.error = Some(Error::Aborted);
        to.on_event(Event::ResetReceived);
        from.on_peer_reset();
        return Carried { bytes: 0, stop: Stop::Parted };
    }
    to.recv.share = place.share();
    to.recv.right_edge = to.recv.right_edge.max(to.recv.consumed + u64::from(to.recv.room()));
    let window = to.recv.window();
    let count = queued.min(window).min(most);
    let mut carried = Carried::default();
    for slice in bytes.peek(Connection::offset_of(from.send.nxt), count as usize) {
        if slice.is_empty() {
            continue;
        }
        if place.place(Connection::offset_of(to.recv.nxt), slice).is_err() {
            carried.stop = Stop::NoMemory;
            break;
        }
        let len = slice.len() as u64;
        to.look_for_urgent_byte(to.recv.nxt, slice, to.recv.nxt + len);
        from.send.nxt += len;
        to.recv.nxt += len;
        carried.bytes += len;
    }
    from.send.una = from.send.nxt;
    from.send.window = u32::try_from(to.recv.window()).unwrap_or(u32::MAX);
    from.send.max_window = from.send.max_window.max(from.send.window);
    to.recv.last_ack_sent = to.recv.nxt;
    if carried.stop == Stop::Done && carried.bytes < queued {
        carried.stop = if carried.bytes >= window { Stop::Window } else { Stop::Budget };
    }
    carried
}

/// What both ends remember of bytes that have passed.
fn note_progress(now: Instant, from: &mut Connection, to: &mut Connection) {
    let stamp = Stamp::at(now);
    (from.sent_at, from.heard_at, to.heard_at, to.stats.data_at) = (stamp, stamp, stamp, stamp);
    if from.orphaned {
        from.start_patience(now);
    }
}

/// The FIN of `from`, everything before which has arrived.
fn carry_fin(now: Instant, from: &mut Connection, to: &mut Connection) {
    from.send.nxt += 1;
    from.send.una = from.send.nxt;
    to.recv.fin = to.recv.nxt;
    to.recv.nxt += 1;
    to.recv.right_edge = to.recv.right_edge.max(to.recv.nxt);
    to.recv.last_ack_sent = to.recv.nxt;
    to.on_event(Event::FinReceived);
    to.pending.ack = false;
    if to.state == State::TimeWait {
        to.enter_time_wait(now);
    }
    from.on_fin_acknowledged(now);
}

impl Connection {
    /// Whether this end, of a connection whose other end is here too, can be joined with it: it is ESTABLISHED, and nothing
    /// has been sent or received since the SYNs.
    pub fn can_cut_through(&self) -> bool {
        self.state == State::Established
            && self.send.una == 1
            && self.send.nxt == 1
            && self.recv.nxt == 1
            && self.recv.fin == u64::MAX
            && self.recv.reassembly.is_none()
    }

    /// Whether it is joined with its other end, or was.
    pub const fn is_cut_through(&self) -> bool {
        self.cut_through
    }

    /// The other end is no more. Whatever is sent from now on is answered with a reset; if something is waiting to be sent,
    /// it is now. Returns whether that has ended the connection.
    pub fn handle_partner_gone(&mut self) -> bool {
        self.pending.reset = false;
        let sends = self.state.sends_data() && self.send.nxt < self.send.end();
        if sends {
            self.on_peer_reset();
        }
        sends
    }

    /// Whether there is something to carry.
    #[inline]
    pub(crate) fn has_to_carry(&self) -> bool {
        match self.state {
            State::Closed => self.pending.reset,
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.state.sends_data() && self.send.nxt < self.send.end(),
        }
    }

    /// An end whose owner has gone waits for its peer to read for as long as a user timeout says.
    pub(crate) fn start_patience(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 | State::Closing | State::LastAck => {
                if let Some(patience) = self.settings.user_timeout() {
                    self.timers.set(Timer::Linger, now + patience);
                }
            }
            State::Closed
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait2
            | State::CloseWait
            | State::TimeWait => {}
        }
    }

    fn begin_cut_through(&mut self) {
        debug_assert!(self.can_cut_through(), "both ends are open and quiet");
        self.cut_through = true;
        self.timers.clear_all();
        self.search = None;
        self.pending.ack = false;
        self.pending.unacknowledged = 0;
        // Window updates are worth their while when they open the window this far.
        self.recv.segment_size = self.send.mss;
    }

    fn note_cut_through_limit(&mut self, now: Instant, stop: Stop) {
        let limit = match stop {
            Stop::Window | Stop::NoMemory => Limit::PeerWindow,
            Stop::Done | Stop::Budget | Stop::Parted => Limit::Application,
        };
        self.switch_limit(now, limit);
    }
}
