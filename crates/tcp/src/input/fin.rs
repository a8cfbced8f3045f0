//! Step 8: the FIN bit.

use base::Instant;

use crate::connection::Connection;
use crate::segment::Position;
use crate::state::{Event, State};

impl Connection {
    /// Remembers where the peer's stream ends. A second FIN elsewhere is a lie and is not believed.
    pub(crate) fn note_fin(&mut self, position: Position) {
        if self.recv.fin == Position::MAX && position >= self.recv.nxt {
            self.recv.fin = position;
        }
    }

    /// The FIN is processed once everything before it is there.
    pub(crate) fn step_8_fin(&mut self, now: Instant) {
        if self.recv.nxt != self.recv.fin {
            return;
        }
        self.recv.nxt += 1;
        self.recv.right_edge = self.recv.right_edge.max(self.recv.nxt);
        self.recv.reassembly = None;
        self.pending.ack = true;
        self.on_event(Event::FinReceived);
        if self.state == State::TimeWait {
            self.enter_time_wait(now);
        }
    }

    /// Both directions are done: only the linger timer is left.
    pub(crate) fn enter_time_wait(&mut self, now: Instant) {
        self.timers.clear_all();
        self.start_linger(now);
    }
}
