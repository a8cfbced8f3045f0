//! What an application sends just before it resets a connection, or closes one that it has not read to the end.
//!
//! Both commands may come in one batch, and a reset overtakes everything that is queued. On Linux the bytes are on their way
//! by then, as far as the windows allow: `send` does not return before. So such a connection first has its turn of output.

use base::Instant;
use stack::SocketId;

use super::app::LiveKind;
use super::core::Core;

impl Core {
    /// Whether closing this connection would reset it before what is queued had a chance to be sent.
    pub(super) fn has_last_words(&self, id: SocketId, reset: bool) -> bool {
        self.stack.tcp(id).is_some_and(|connection| {
            let leaves_unread = connection.received_to() > connection.consumed_to();
            (reset || leaves_unread) && connection.sent_to() < connection.queued_to()
        })
    }

    /// It is closed when output was asked for.
    pub(super) fn close_after_output(&mut self, id: SocketId, reset: bool) {
        self.last_words.push((id, reset));
    }

    /// Output was asked for. Whether connections were closed, whose resets are to be sent now.
    pub(super) fn on_output(&mut self, now: Instant) -> bool {
        let closing = std::mem::take(&mut self.last_words);
        for &(id, reset) in &closing {
            self.close_in_stack(now, id, LiveKind::Connection, reset);
        }
        !closing.is_empty()
    }
}
