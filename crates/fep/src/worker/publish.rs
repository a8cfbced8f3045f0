//! What the applications get to see: after a batch, for each socket that the stack has touched.
//!
//! For a connection the order is the channel's rule: cursors first, then the state, then whoever waits is woken.

use base::Instant;
use channel::{Offence, State};
use stack::{Change, SocketId};
use tcp::TcpInfo;

use super::app::{Entry, Live, LiveKind};
use super::core::Core;
use super::key::Key;
use super::kin::identity_of;

/// Changes published in one turn; what is left comes in the next.
const PUBLISH_BUDGET: usize = 4096;

impl Core {
    /// Publishes what has changed; how many sockets that were.
    pub(crate) fn publish_changes(&mut self, now: Instant) -> usize {
        self.publish_told();
        for count in 0..PUBLISH_BUDGET {
            match self.stack.poll_changed() {
                None => return count,
                Some(Change::Updated(id)) => self.on_updated(now, id),
                Some(Change::Released { user_data, id }) => {
                    self.forget_shared(now, id);
                    if let Some(key) = Key::from_word(user_data)
                        && self.apps.get(key.app).is_some()
                    {
                        self.release(key.app, key.socket);
                    }
                }
            }
        }
        PUBLISH_BUDGET
    }

    /// The number is free again.
    pub(super) fn release(&mut self, app: u32, socket: u32) {
        self.apps[app].errors.forget(socket);
        self.apps[app].remove(socket);
        self.apps[app].channel.release_socket(socket);
    }

    fn on_updated(&mut self, now: Instant, id: SocketId) {
        let Some(key) = Key::from_word(self.stack.user_data(id)) else { return };
        let Some(application) = self.apps.get(key.app) else { return };
        let kind = match application.entry(key.socket) {
            Entry::Live(live) if live.id == id => live.kind,
            // Its owner has let go; what the peer has acknowledged of it is still told, to free the send ring.
            Entry::Closing(closing) if *closing == id => {
                if let Some((connection, rings)) = self.stack.tcp_and_stream(id)
                    && rings.publish_acked(connection.acked_to())
                {
                    self.on_kept_acked(now, id);
                }
                return;
            }
            Entry::Live(_)
            | Entry::Closing(_)
            | Entry::Free
            | Entry::Moved(_)
            | Entry::FreshTcp(_)
            | Entry::FreshUdp(_) => return,
        };
        let (app, socket) = (key.app, key.socket);
        match kind {
            LiveKind::Connection => {
                self.guarded(app, |core| core.publish_connection(now, app, socket));
                self.publish_stamps(now, app, socket);
            }
            LiveKind::Listener => self.accept_waiting(now, app, socket),
            LiveKind::Udp => {
                self.publish_udp(app, socket);
                self.publish_stamps(now, app, socket);
                self.watch_for_idleness(now, key);
            }
            LiveKind::Bound => {}
        }
    }

    /// Publishes a connection and wakes who waits for it.
    pub(super) fn publish_connection(&mut self, now: Instant, app: u32, socket: u32) -> Result<(), Offence> {
        let before = self.apps[app].channel.state(socket);
        let Some(live) = self.apps[app].live(socket).copied() else { return Ok(()) };
        let tells_sent = self.stack.tells_sent(live.id);
        let Some((connection, rings)) = self.stack.tcp_and_stream(live.id) else { return Ok(()) };
        let received = connection.received_to();
        let has_received = received > connection.consumed_to();
        let goes_on = rings.publish_acked(connection.acked_to());
        rings.publish_window(connection.congestion_window());
        if tells_sent {
            rings.publish_sent(connection.sent_to());
        }
        let is_urgent = connection.urgent().is_some_and(|mark| rings.publish_urgent(mark));
        rings.publish_received(received);
        let state = connection_state(connection, &live, before);
        let error = connection.error().filter(|_| !live.error_told).map(|error| errno(error, connection));
        if goes_on {
            self.on_kept_acked(now, live.id);
        }
        if has_received {
            self.hear_consumed(now, live.id)?;
            self.watch_for_idleness(now, Key { app, socket });
        }
        let application = &mut self.apps[app];
        if let Some(error) = error {
            if let Some(live) = application.live(socket) {
                live.error_told = true;
            }
            application.channel.publish_error(socket, error);
        }
        let told = application.channel.state(socket) & State::ERROR;
        application.channel.publish_state(socket, state | told);
        let must_withhold = application.channel.notify(socket);
        if is_urgent {
            application.channel.notify_urgent(socket);
        }
        if must_withhold {
            self.withhold(now, Key { app, socket });
        }
        Ok(())
    }

    /// Publishes a UDP socket and wakes who waits for it.
    pub(super) fn publish_udp(&mut self, app: u32, socket: u32) {
        let Some(live) = self.apps[app].live(socket).copied() else { return };
        if let Some(rings) = self.stack.datagrams(live.id) {
            rings.publish();
        }
        let error = self.stack.take_error(live.id);
        let application = &mut self.apps[app];
        if let Some(error) = error {
            application.channel.publish_error(socket, error.errno());
        }
        if live.read_closed {
            let state = application.channel.state(socket) | State::PEER_CLOSED;
            application.channel.publish_state(socket, state);
        }
        application.channel.notify(socket);
    }

    /// Publishes a socket's addresses and what it is.
    pub(super) fn publish_place(&mut self, app: u32, socket: u32, state: State) {
        let Some(live) = self.apps[app].live(socket) else { return };
        let (id, kind) = (live.id, live.kind);
        let (local, remote) = (self.stack.local_addr(id), self.stack.remote_addr(id));
        let channel = &mut self.apps[app].channel;
        channel.publish_addresses(socket, local, remote);
        if kind != LiveKind::Udp {
            channel.publish_identity(socket, identity_of(id));
        }
        channel.publish_state(socket, state);
    }

    /// Hears how far the application has read, tells the stack, and says when it wants to hear of it again.
    pub(super) fn hear_consumed(&mut self, now: Instant, id: SocketId) -> Result<(), Offence> {
        // Twice at most: the second time, the application is reading right now, and the next batch looks again.
        for _ in 0..2 {
            let Some((connection, rings)) = self.stack.tcp_and_stream(id) else { return Ok(()) };
            let (known, consumed) = (connection.consumed_to(), rings.poll_consumed()?);
            if consumed > known {
                self.stack.tcp_consumed(now, id, consumed);
            }
            let Some((connection, rings)) = self.stack.tcp_and_stream(id) else { return Ok(()) };
            if !rings.notify_consumed_at(connection.consume_notify_at())? {
                break;
            }
        }
        Ok(())
    }

    /// INFO.
    pub(super) fn on_info(
        &mut self,
        now: Instant,
        app: u32,
        socket: u32,
    ) -> Result<Result<(), i32>, Offence> {
        let info = match self.apps[app].entry(socket) {
            Entry::Free | Entry::Closing(_) | Entry::Moved(_) => return Err(Offence::NotOpen),
            Entry::FreshTcp(_) => Some(TcpInfo::of_closed()),
            Entry::FreshUdp(_) => None,
            Entry::Live(live) => self.stack.tcp_info(now, live.id),
        };
        let Some(info) = info else { return Ok(Err(libc::EOPNOTSUPP)) };
        self.apps[app].channel.publish_info(&info);
        Ok(Ok(()))
    }

    fn watch_for_idleness(&mut self, now: Instant, key: Key) {
        if let Some(live) = self.apps[key.app].live(key.socket)
            && !live.watched_for_idleness
        {
            live.watched_for_idleness = true;
            let id = live.id.to_bits();
            self.idle.watch(now, key, id);
        }
    }
}

/// What a connection looks like to its application.
fn connection_state(connection: &tcp::Connection, live: &Live, before: State) -> State {
    use tcp::State as Tcp;
    let mut state = State::BOUND | (before & State::CONNECTED);
    state |= match connection.state() {
        // Fast open: its owner has it before the handshake is over.
        Tcp::SynReceived if connection.is_early() => State::CONNECTED,
        Tcp::SynSent if connection.awaits_data() => State::CONNECTING | State::AWAITS_DATA,
        Tcp::SynSent | Tcp::SynReceived => State::CONNECTING,
        // To its owner a connection in TIME-WAIT is over (Linux shows TCP_CLOSE).
        Tcp::Closed | Tcp::TimeWait => State::CLOSED | State::PEER_CLOSED | State::SEND_CLOSED,
        Tcp::Established | Tcp::FinWait1 | Tcp::FinWait2 | Tcp::CloseWait | Tcp::Closing | Tcp::LastAck => {
            State::CONNECTED
        }
    };
    if connection.is_peer_closed() || live.read_closed {
        state |= State::PEER_CLOSED;
    }
    if connection.is_send_closed() {
        state |= State::SEND_CLOSED;
    }
    state
}

/// Linux's number for the end of a connection.
fn errno(error: tcp::Error, connection: &tcp::Connection) -> i32 {
    match error {
        tcp::Error::Refused => libc::ECONNREFUSED,
        // Linux (tcp_reset): a reset after the peer's FIN, but before ours, only means that sending is over.
        tcp::Error::Reset if connection.is_peer_closed() && !connection.is_send_closed() => libc::EPIPE,
        tcp::Error::Reset => libc::ECONNRESET,
        tcp::Error::TimedOut => libc::ETIMEDOUT,
        tcp::Error::HostUnreachable => libc::EHOSTUNREACH,
        tcp::Error::NetworkUnreachable => libc::ENETUNREACH,
        tcp::Error::ProtocolUnreachable => libc::ENOPROTOOPT,
        tcp::Error::Aborted => libc::ECONNABORTED,
        tcp::Error::SourceRouteFailed => libc::EOPNOTSUPP,
        tcp::Error::HostUnknown => libc::EHOSTDOWN,
        tcp::Error::HostIsolated => libc::ENONET,
    }
}
