//! TIME-WAIT records: what is left of connections that were closed in order, a hundred bytes or so each.
//!
//! Of a connection both of whose ends were here, joined without segments, nothing can come late. Its record only keeps the
//! port from being bound without `SO_REUSEADDR`, as on Linux, and any new connection may take its place at once. The end
//! that chose its port by itself leaves no record: Linux, too, uses such a port again (`tcp_tw_reuse`, by default for
//! loopback), though only after a second.

use base::{Instant, SeqNumber};

use crate::buffers::BufferFamily;
use crate::flow::{FourTuple, Target};
use crate::ports::{Claim, Manner};
use crate::stack::{Stack, Timer};
use crate::wheel::TimerKey;

/// A record.
pub(crate) struct TimeWaitRecord {
    pub(crate) tuple: FourTuple,
    record: tcp::TimeWait,
    manner: Manner,
    timer: Option<TimerKey>,
    /// Both ends were on this stack, and no segment of it was ever on its way.
    cut_through: bool,
}

impl<B: BufferFamily> Stack<B> {
    /// A closed connection in TIME-WAIT becomes a record; its socket is released.
    pub(crate) fn enter_time_wait(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let manner = socket.manner;
        let Some(tcp) = socket.tcp_mut() else { return };
        let Some(record) = tcp.connection.time_wait() else {
            self.sync_timer(index);
            return;
        };
        let cut_through = tcp.connection.is_cut_through();
        let chose_port = !tcp.connection.is_passive() && !manner.is_some_and(|manner| manner.explicit);
        let tuple = tcp.tuple();
        self.remember_path(now, index);
        self.leave_tables(index);
        self.release(index);
        if record.deadline() <= now || (cut_through && chose_port) {
            return;
        }
        if self.time_waits.len() >= self.config.max_time_wait {
            self.stats.time_wait_overflow += 1;
            return;
        }
        self.stats.time_waits += 1;
        // Linux: what is bound beside a TIME-WAIT record has to reuse the address.
        let manner = Manner { explicit: false, listening: false, ..manner.unwrap_or_default() };
        self.tcp_ports.hold(&Claim { local: tuple.local, manner });
        let deadline = record.deadline();
        let key = self.time_waits.insert(TimeWaitRecord { tuple, record, manner, timer: None, cut_through });
        self.insert_flow(&tuple, Target::TimeWait(key.index));
        let timer = self.wheel.arm(deadline, Timer::TimeWait(key.index));
        if let Some(record) = self.time_waits.get_index_mut(key.index) {
            record.timer = Some(timer);
        }
    }

    /// A segment for a record.
    pub(crate) fn give_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) {
        self.stats.time_wait_in += 1;
        let listens = self.find_listener(tuple).is_some();
        let Some(record) = self.time_waits.get_index_mut(index) else { return };
        let mut verdict = record.record.handle_segment(now, segment);
        if matches!(verdict, tcp::TimeWaitVerdict::Reopen(_)) && !listens {
            verdict = record.record.refuse(now, segment);
        }
        match verdict {
            tcp::TimeWaitVerdict::Drop => {}
            // A deadline that moved on is seen when the timer fires.
            tcp::TimeWaitVerdict::Answer(answer) => self.send_bare_segment(now, tuple, &answer),
            tcp::TimeWaitVerdict::Reopen(at_least) => {
                self.forget_time_wait(index);
                self.handle_unclaimed(now, tuple, segment, Some(at_least));
            }
        }
    }

    /// A SYN for a connection in TIME-WAIT whose owner still holds the socket: what a record would allow is allowed here,
    /// too. Whether a new connection was begun; the old one is closed then.
    pub(crate) fn succeed_held(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &FourTuple,
        segment: &tcp::SegmentIn<'_>,
    ) -> bool {
        let Some(tcp) = self.sockets.get_index(index).and_then(|socket| socket.tcp()) else { return false };
        let Some(mut record) = tcp.connection.time_wait() else { return false };
        let tcp::TimeWaitVerdict::Reopen(at_least) = record.handle_segment(now, segment) else {
            return false;
        };
        if self.find_listener(tuple).is_none() {
            return false;
        }
        self.with_tcp(now, index, tcp::Connection::handle_succeeded);
        self.handle_unclaimed(now, tuple, segment, Some(at_least));
        true
    }

    /// A record's timer fired.
    pub(crate) fn on_time_wait_timer(&mut self, now: Instant, index: u32) {
        let Some(record) = self.time_waits.get_index_mut(index) else { return };
        record.timer = None;
        let deadline = record.record.deadline();
        if deadline > now {
            record.timer = Some(self.wheel.arm(deadline, Timer::TimeWait(index)));
        } else {
            self.forget_time_wait(index);
        }
    }

    /// Whether a connection of ours may have these ends: nobody has them, or a record that may be succeeded.
    pub(crate) fn is_available(&mut self, now: Instant, tuple: &FourTuple) -> bool {
        match self.find_tcp(tuple) {
            None => true,
            Some(Target::Socket(_)) => false,
            Some(Target::TimeWait(index)) => {
                let record = self.time_waits.get_index(index);
                record.is_some_and(|record| record.cut_through || record.record.reusable(now).is_some())
            }
        }
    }

    /// Takes the place of a record that has these ends, if there is one; returns the least initial sequence number.
    pub(crate) fn succeed_time_wait(&mut self, now: Instant, tuple: &FourTuple) -> Option<SeqNumber> {
        let Some(Target::TimeWait(index)) = self.find_tcp(tuple) else { return None };
        let at_least = self.time_waits.get_index(index).and_then(|record| record.record.reusable(now));
        self.forget_time_wait(index);
        at_least
    }

    /// Whether what a record is left of was joined without segments.
    pub(crate) fn was_cut_through(&self, record: u32) -> bool {
        self.time_waits.get_index(record).is_some_and(|record| record.cut_through)
    }

    fn forget_time_wait(&mut self, index: u32) {
        let Some(record) = self.time_waits.remove(index) else { return };
        if let Some(timer) = record.timer {
            self.wheel.cancel(timer);
        }
        self.remove_flow(&record.tuple, Target::TimeWait(index));
        self.tcp_ports.release(&Claim { local: record.tuple.local, manner: record.manner });
    }
}
