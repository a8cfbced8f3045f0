//! Options that applications set.

use base::Instant;
use channel::Offence;
use stack::{SocketError, SocketOption};

use super::app::{Entry, Live, LiveKind};
use super::core::Core;

impl Core {
    /// SET_OPTION.
    pub(super) fn on_option(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
        option: SocketOption,
    ) -> Result<Result<(), i32>, Offence> {
        let most = u32::try_from(self.limits.receive_buffer_max).unwrap_or(u32::MAX);
        let option = match option {
            SocketOption::ReceiveLimit(bytes) => SocketOption::ReceiveLimit(bytes.min(most)),
            other => other,
        };
        if option == SocketOption::QueueErrors(false) {
            self.forget_errors(app, socket);
        }
        let live = match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => return Err(Offence::NotOpen),
            Entry::FreshTcp(options) => {
                options.apply(option);
                return Ok(Ok(()));
            }
            Entry::FreshUdp(fresh) => {
                if let SocketOption::ReceiveLimit(bytes) = option {
                    fresh.1.set_receive_limit(bytes as usize);
                }
                fresh.0.apply(option);
                return Ok(Ok(()));
            }
            Entry::Live(live) => *live,
        };
        if let SocketOption::ReceiveLimit(bytes) = option {
            self.limit_rings(live, bytes);
            if live.kind == LiveKind::Udp {
                return Ok(Ok(())); // the stack has no window to keep
            }
        }
        let answer = self.stack.set_option(now, live.id, option).map_err(SocketError::errno);
        if option == SocketOption::TellSent(true) && live.kind == LiveKind::Connection {
            // Whoever asked relies on it from the answer on.
            self.publish_connection(now, app, socket)?;
        }
        Ok(answer)
    }

    /// A ring never gets smaller than the window that the peer was promised.
    fn limit_rings(&mut self, live: Live, bytes: u32) {
        match live.kind {
            LiveKind::Connection => {
                if let Some((connection, rings)) = self.stack.tcp_and_stream(live.id) {
                    let promised = connection.receive_limit();
                    rings.set_receive_limit(u64::from(bytes).max(promised) as usize);
                }
            }
            LiveKind::Udp => {
                if let Some(rings) = self.stack.datagrams(live.id) {
                    rings.set_receive_limit(bytes as usize);
                }
            }
            LiveKind::Bound | LiveKind::Listener => {}
        }
    }
}
