//! A socket of an endpoint: opening, binding, listening, connecting, options, closing.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use channel::app::{ReceiveDatagrams, ReceiveStream, Record, SendDatagrams, SendStream};
use channel::{Command, State};
use stack::QueuedError;
use tcp::{CongestionAlgorithm, Keepalive, TcpInfo};

use super::bulk::Meter;
use super::sides::{ReceiveSide, SendSide, Sending};
use super::{Interest, Options, SocketOption};
use crate::Endpoint;
use crate::endpoint::{Shared, lock};

/// Is told that something about a socket changed: bytes came or were acknowledged, a connection can be accepted, the
/// peer closed, an error arose. It must return soon and call nothing of the endpoint.
pub trait Observer: Send + Sync {
    /// Something changed; ask the socket what.
    fn on_event(&self);
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    Datagram,
}

/// A TCP or UDP socket that never blocks. Dropping it closes it: queued data is still delivered.
pub struct Socket {
    pub(super) endpoint: Endpoint,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) shared: Arc<Shared>,
    pub(super) send: Arc<Sending>,
    pub(super) receive: Mutex<ReceiveSide>,
    options: Mutex<Options>,
    /// One synchronous command at a time.
    pub(super) calling: Mutex<()>,
    pub(super) progress: Progress,
}

/// What this side knows of the socket beside the stack's record, readable without a lock.
#[derive(Default)]
pub(super) struct Progress {
    /// Errors of the record's count that were taken.
    pub(super) errors_taken: AtomicU32,
    /// An error that is to be told again; 0: none.
    pub(super) kept_error: AtomicI32,
    /// What this side has put into the queue of errors.
    pub(super) own_errors: Mutex<VecDeque<QueuedError>>,
    pub(super) has_own_errors: AtomicBool,
    pub(super) own_errors_total: AtomicU32,
    /// Sends that were to be told as copied.
    pub(super) copied: AtomicU32,
    /// A datagram that is too long for its path or link is refused.
    pub(super) refuses_long: AtomicBool,
    /// The error that the stack is gone was taken.
    pub(super) end_taken: AtomicBool,
    /// `connect` was called, and (then) told that it succeeded.
    pub(super) connect_called: AtomicBool,
    pub(super) connect_told: AtomicBool,
    pub(super) read_shut: AtomicBool,
    pub(super) write_shut: AtomicBool,
    /// Stream offset up to which received bytes were taken.
    pub(super) consumed: AtomicU64,
    /// Bytes that the send ring took at most when it was last found full, or may take.
    pub(super) send_capacity: AtomicUsize,
    /// Sends that found no room.
    pub(super) blocked_sends: AtomicU64,
    pub(super) write_mark_set: AtomicBool,
    /// Bytes that make a stream readable; 0 counts as 1.
    pub(super) low_water: AtomicU32,
    /// Bytes not sent that keep a send from queueing more; 0: that does not matter.
    pub(super) not_sent_low_water: AtomicU32,
    /// What one of Linux' segment buffers would take, once it is known for good; else 0.
    pub(super) segment_buffer: AtomicU32,
    pub(super) meter: Meter,
    /// The program gave it up by [`Socket::abort`].
    aborted: AtomicBool,
    /// A connection attempt waits for the first bytes (TCP Fast Open).
    pub(super) held: AtomicBool,
    /// Urgent bytes stay in the line.
    pub(super) urgent_inline: AtomicBool,
    /// The stream offset behind the urgent byte that was received last, out of the line.
    pub(super) urgent_taken: AtomicU64,
}

impl Socket {
    /// A new TCP socket.
    pub fn tcp(endpoint: &Endpoint) -> io::Result<Self> {
        let number = new_number(endpoint)?;
        endpoint.channel().post(&Command::OpenTcp { socket: number, sequence: 0 })?;
        Ok(Self::stream(endpoint, number))
    }

    /// A new UDP socket.
    pub fn udp(endpoint: &Endpoint) -> io::Result<Self> {
        let number = new_number(endpoint)?;
        let channel = endpoint.channel();
        channel.post(&Command::OpenUdp { socket: number, sequence: 0 })?;
        let send = SendDatagrams::new(Arc::clone(channel), number);
        let limit = send.limit();
        Ok(Self::new(
            endpoint,
            number,
            Kind::Datagram,
            SendSide::Datagrams(send),
            ReceiveSide::Datagrams(ReceiveDatagrams::new(Arc::clone(channel), number)),
            limit,
        ))
    }

    fn stream(endpoint: &Endpoint, number: u32) -> Self {
        let channel = endpoint.channel();
        let send = SendStream::new(Arc::clone(channel), number);
        let limit = send.limit();
        Self::new(
            endpoint,
            number,
            Kind::Stream,
            SendSide::Stream(send),
            ReceiveSide::Stream(ReceiveStream::new(Arc::clone(channel), number)),
            limit,
        )
    }

    pub(super) fn new(
        endpoint: &Endpoint,
        number: u32,
        kind: Kind,
        send: SendSide,
        receive: ReceiveSide,
        send_limit: usize,
    ) -> Self {
        let progress = Progress { send_capacity: AtomicUsize::new(send_limit), ..Progress::default() };
        let socket = Self {
            endpoint: endpoint.clone(),
            number,
            kind,
            shared: endpoint.register(number),
            send: Arc::new(Sending::new(send)),
            receive: Mutex::new(receive),
            options: Mutex::default(),
            calling: Mutex::default(),
            progress,
        };
        // Nobody waits for room until a send found none.
        socket.record().set_write_wake(u64::MAX);
        socket
    }

    pub(super) fn record(&self) -> Record<'_> {
        self.endpoint.channel().record(self.number)
    }

    /// What the socket is doing. If the stack is gone, connections have ended with an error, as by a reset.
    pub(super) fn state(&self) -> State {
        let state = self.record().state();
        if self.kind == Kind::Stream && self.endpoint.is_dead() && !state.contains(State::LISTENING) {
            return (state - State::CONNECTING) | State::ERROR | State::CLOSED;
        }
        if state.contains(State::CLOSED)
            && !state.contains(State::CONNECTED)
            && !self.progress.connect_called.load(Ordering::Acquire)
        {
            // An attempt failed, and the program was told: as a fresh socket (Linux disconnects it then).
            return State::empty();
        }
        state
    }

    fn call(&self, make: impl FnOnce(u32) -> Command) -> io::Result<()> {
        let _one = lock(&self.calling);
        self.endpoint.channel().call(self.number, make)
    }

    /// Binds to a local address; port 0 picks a free one.
    pub fn bind(&self, local: SocketAddr) -> io::Result<()> {
        if self.record().state().contains(State::BOUND) {
            return Err(errno(libc::EINVAL));
        }
        self.call(|sequence| Command::Bind { socket: self.number, sequence, local })
    }

    /// Takes connections from now on; at most `backlog` wait to be accepted.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        // One that was shut may listen anew.
        self.record().set_accepted(self.shared.open_accepted());
        self.call(|sequence| Command::Listen { socket: self.number, sequence, backlog })
    }

    /// The next connection of a listener.
    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        if !self.is_listening() {
            return Err(errno(if self.kind == Kind::Stream { libc::EINVAL } else { libc::EOPNOTSUPP }));
        }
        loop {
            let next = match self.take_accepted() {
                Some(number) => Some(number),
                None => {
                    self.endpoint.dispatch();
                    self.take_accepted()
                }
            };
            let Some(number) = next else {
                return Err(self.take_error()?.unwrap_or_else(|| errno(libc::EAGAIN)));
            };
            let connection = Self::stream(&self.endpoint, number);
            connection.progress.connect_called.store(true, Ordering::Relaxed);
            connection.progress.connect_told.store(true, Ordering::Relaxed);
            connection.record().set_taken(true);
            connection.inherit(self.options());
            if let Some(remote) = connection.record().remote() {
                return Ok((connection, remote));
            }
        }
    }

    /// The options of the listener that accepted it, or of whoever used it before. The stack's part of them the stack knows.
    pub(super) fn inherit(&self, options: Options) {
        if options.send_buffer > 0 {
            self.set_send_limit(options.send_buffer as usize);
        }
        self.progress.low_water.store(options.receive_low_water, Ordering::Relaxed);
        self.progress.not_sent_low_water.store(options.not_sent_low_water, Ordering::Relaxed);
        self.set_urgent_inline(options.urgent_inline);
        *lock(&self.options) = options;
    }

    fn take_accepted(&self) -> Option<u32> {
        let mut accepted = lock(&self.shared.accepted);
        let next = accepted.waiting.pop_front()?;
        accepted.taken = accepted.taken.wrapping_add(1);
        self.record().set_accepted(accepted.taken);
        Some(next)
    }

    /// TCP: starts to connect and fails with `EINPROGRESS`; writable says that it ended, [`take_error`](Self::take_error)
    /// how. UDP: sets the peer.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        if self.kind == Kind::Datagram {
            return self.call(|sequence| Command::Connect {
                socket: self.number,
                sequence,
                remote: Some(remote),
            });
        }
        let state = self.state();
        if self.progress.connect_called.load(Ordering::Acquire) {
            return self.connect_again(state);
        }
        if state.contains(State::LISTENING) {
            return Err(errno(libc::EISCONN));
        }
        if self.record().state().contains(State::CLOSED) {
            self.begin_anew()?;
        }
        self.call(|sequence| Command::Connect { socket: self.number, sequence, remote: Some(remote) })?;
        self.progress.connect_called.store(true, Ordering::Release);
        // Fast open: it counts as connected, and the first send begins the connection.
        if !self.record().state().contains(State::AWAITS_DATA) {
            return Err(errno(libc::EINPROGRESS));
        }
        self.progress.held.store(true, Ordering::Release);
        Ok(())
    }

    /// An attempt has failed: the stack makes another socket of this one, which gets the options that were set.
    fn begin_anew(&self) -> io::Result<()> {
        self.call(|sequence| Command::Connect { socket: self.number, sequence, remote: None })?;
        let (fresh, options) = (Options::default(), self.options());
        for option in options.each() {
            if let Some(option) = for_stack(option, &fresh, &options) {
                self.call(|sequence| Command::SetOption { socket: self.number, sequence, option })?;
            }
        }
        Ok(())
    }

    /// Connected by fast open in name only: the connection begins with the first send, which has not been yet.
    pub fn begins_with_send(&self) -> bool {
        self.progress.held.load(Ordering::Relaxed) && self.shared.queued.load(Ordering::Relaxed) == 0
    }

    /// The caller has been told that it is connected: connecting again is an error from now on.
    pub fn note_connected(&self) {
        self.progress.connect_told.store(true, Ordering::Release);
    }

    /// Whether it listens, or has been told to connect.
    pub fn has_begun(&self) -> bool {
        let begun = State::LISTENING | State::CONNECTING | State::CONNECTED | State::CLOSED;
        self.record().state().intersects(begun)
    }

    /// As Linux answers: once with the outcome, then that it is connected.
    fn connect_again(&self, state: State) -> io::Result<()> {
        if state.contains(State::CONNECTED) && self.progress.connect_told.load(Ordering::Acquire) {
            return Err(errno(libc::EISCONN)); // however it has ended since
        }
        if let Some(error) = self.take_error()? {
            self.forget_attempt(state);
            return Err(error);
        }
        if self.begins_with_send() {
            return Err(errno(libc::EISCONN));
        }
        if state.contains(State::CONNECTED) {
            let told = self.progress.connect_told.swap(true, Ordering::AcqRel);
            return if told { Err(errno(libc::EISCONN)) } else { Ok(()) };
        }
        if state.contains(State::CONNECTING) {
            return Err(errno(libc::EALREADY));
        }
        self.forget_attempt(state);
        Err(errno(libc::ECONNABORTED))
    }

    /// The outcome of a failed connect is told: the socket may try again.
    fn forget_attempt(&self, state: State) {
        if !state.contains(State::CONNECTED) {
            self.progress.connect_called.store(false, Ordering::Release);
        }
    }

    /// Undoes the connect of a datagram socket: it has no peer any more.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: a stream ends by [`abort`](Self::abort).
    pub fn disconnect(&self) -> io::Result<()> {
        match self.kind {
            Kind::Datagram => {
                self.call(|sequence| Command::Connect { socket: self.number, sequence, remote: None })
            }
            Kind::Stream => Err(errno(libc::EOPNOTSUPP)),
        }
    }

    /// Closes it at once, a connection by a reset. It is of no use after this.
    pub fn abort(&self) {
        if self.progress.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.leave(&Command::Abort { socket: self.number });
    }

    /// Ends it by that command, if it has not ended, and has its number forgotten.
    fn leave(&self, command: &Command) {
        *lock(&self.shared.observer) = None;
        let was_listening = self.is_listening();
        if !self.shared.is_closed.swap(true, Ordering::AcqRel) {
            // If the channel is closed, so is the socket.
            let _ = self.endpoint.channel().post(command);
            if was_listening {
                self.endpoint.reset_unaccepted(&self.shared);
            }
        }
        self.endpoint.unregister(self.number, &self.shared);
    }

    /// Ends one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let state = self.state();
        let begun = State::CONNECTED | State::LISTENING | State::CONNECTING;
        if !state.intersects(begun) || (self.kind == Kind::Stream && state.contains(State::CLOSED)) {
            // Linux notes it all the same (`inet_shutdown`).
            self.note_shutdown(how);
            return Err(errno(libc::ENOTCONN));
        }
        self.call(|sequence| Command::Shutdown { socket: self.number, sequence, how })?;
        if state.contains(State::CONNECTING) {
            return Ok(()); // the attempt ends, by an error
        }
        if how != Shutdown::Write && state.contains(State::LISTENING) {
            // That ends the listening, and leaves a fresh socket.
            self.endpoint.reset_waiting(&self.shared);
            return Ok(());
        }
        self.note_shutdown(how);
        Ok(())
    }

    fn note_shutdown(&self, how: Shutdown) {
        if how != Shutdown::Write {
            self.progress.read_shut.store(true, Ordering::Release);
        }
        if how != Shutdown::Read {
            self.progress.write_shut.store(true, Ordering::Release);
        }
    }

    /// The local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.record().local().ok_or_else(|| errno(libc::EINVAL))
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (record, state) = (self.record(), self.state());
        let ended = self.kind == Kind::Stream && state.contains(State::CLOSED);
        if !state.contains(State::CONNECTED) || ended {
            return Err(errno(libc::ENOTCONN));
        }
        // Linux: a datagram socket connected to port 0 sends, and has no peer.
        record.remote().filter(|remote| remote.port() != 0).ok_or_else(|| errno(libc::ENOTCONN))
    }

    /// Sets an option.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        let mut options = lock(&self.options);
        let before = *options;
        let mut after = before;
        after.apply(option);
        if let Some(option) = for_stack(option, &before, &after) {
            self.call(|sequence| Command::SetOption { socket: self.number, sequence, option })?;
        }
        match option {
            SocketOption::SendBuffer(bytes) => self.set_send_limit(bytes as usize),
            SocketOption::ReceiveLowWater(bytes) => self.progress.low_water.store(bytes, Ordering::Relaxed),
            SocketOption::UrgentInline(on) => self.set_urgent_inline(on),
            SocketOption::MtuDiscovery(manner) => {
                self.progress.refuses_long.store(manner.refuses(), Ordering::Relaxed);
            }
            SocketOption::QueueErrors(false) => self.forget_own_errors(),
            SocketOption::NotSentLowWater(bytes) => self.set_not_sent_low_water(bytes),
            _ => {}
        }
        *options = after;
        Ok(())
    }

    fn set_send_limit(&self, bytes: usize) {
        let mut send = lock(&self.send.side);
        let limit = send.set_limit(bytes);
        self.progress.send_capacity.store(limit, Ordering::Relaxed);
    }

    /// The options in force.
    pub fn options(&self) -> Options {
        *lock(&self.options)
    }

    /// Who is told of changes, when events are dispatched ([`Endpoint::dispatch`]). Look at the socket once after this:
    /// only what changes from then on makes events.
    pub fn set_observer(&self, observer: Option<Arc<dyn Observer>>) {
        let watched = observer.is_some();
        *lock(&self.shared.observer) = observer;
        self.record().set_watched(watched);
    }

    /// The endpoint of this socket.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether this is a listener.
    pub fn is_listening(&self) -> bool {
        self.record().state().contains(State::LISTENING)
    }

    /// The largest segment payload of a connection.
    pub fn segment_size(&self) -> Option<u32> {
        self.info().ok().map(|info| info.snd_mss).filter(|size| *size > 0)
    }

    /// What the stack tells of a TCP socket. Asks it, so this takes a round of its worker.
    pub fn info(&self) -> io::Result<TcpInfo> {
        if self.kind != Kind::Stream {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let _one = lock(&self.calling);
        self.endpoint.channel().tcp_info(self.number)
    }

    /// The congestion control: the one that was chosen, else the stack's default.
    pub fn congestion_control(&self) -> io::Result<CongestionAlgorithm> {
        match self.options().congestion {
            Some(chosen) => Ok(chosen),
            None => Ok(self.info()?.congestion),
        }
    }

    /// Closing with `SO_LINGER` waits for what is queued. The end of the stream does not: it follows the last byte at once,
    /// since a peer may acknowledge, or answer, only when it has that.
    fn linger(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let over = |socket: &Self| {
            socket.unacknowledged() == 0 || socket.state().intersects(State::ERROR | State::CLOSED)
        };
        if !over(self) {
            let _ = self.shutdown(Shutdown::Write); // it may be shut already, or broken
        }
        while !over(self) {
            self.record().set_write_wake(self.shared.queued.load(Ordering::Relaxed));
            match super::waiter::wait_for(self, Interest::WRITABLE, Some(deadline), over) {
                Ok(true) => {}
                _ => break,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if *self.progress.aborted.get_mut() {
            return; // its number may be another's
        }
        let linger = self.options().linger;
        let mut reset = false;
        if self.kind == Kind::Stream && self.progress.connect_called.load(Ordering::Relaxed) {
            // RFC 1122 §4.2.2.13: bytes that nobody will read are answered with a reset, so that the peer knows.
            reset = linger == Some(Duration::ZERO)
                || (self.unread() > 0 && !self.progress.read_shut.load(Ordering::Relaxed));
            if let Some(limit) = linger.filter(|_| !reset) {
                self.linger(limit);
            }
        }
        let socket = self.number;
        self.leave(&if reset { Command::Abort { socket } } else { Command::Close { socket } });
        // Numbers of closed sockets come back with events; a program that waits for none shall not run out of them.
        self.endpoint.dispatch();
    }
}

pub(super) fn new_number(endpoint: &Endpoint) -> io::Result<u32> {
    let channel = endpoint.channel();
    if let Some(number) = channel.new_socket() {
        return Ok(number);
    }
    endpoint.dispatch();
    channel.new_socket().ok_or_else(|| errno(libc::ENFILE))
}

pub(super) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// What the stack must be told of an option, if anything.
fn for_stack(option: SocketOption, before: &Options, after: &Options) -> Option<stack::SocketOption> {
    // Setting TCP_NODELAY again lets go what waits by now (tcp(7)).
    if before == after && option != SocketOption::NoDelay(true) {
        return None;
    }
    Some(match option {
        SocketOption::NoDelay(on) => stack::SocketOption::NoDelay(on),
        SocketOption::Cork(on) => stack::SocketOption::Cork(on),
        SocketOption::QuickAck(on) => stack::SocketOption::QuickAck(on),
        SocketOption::Congestion(algorithm) => stack::SocketOption::Congestion(algorithm),
        SocketOption::KeepAlive(_)
        | SocketOption::KeepAliveIdle(_)
        | SocketOption::KeepAliveInterval(_)
        | SocketOption::KeepAliveProbes(_) => {
            if !before.keepalive && !after.keepalive {
                return None;
            }
            stack::SocketOption::Keepalive(after.keepalive.then(|| Keepalive {
                idle: after.keepalive_idle.into(),
                interval: after.keepalive_interval.into(),
                count: u8::try_from(after.keepalive_probes).unwrap_or(u8::MAX),
            }))
        }
        SocketOption::UserTimeout(time) => {
            stack::SocketOption::UserTimeout((!time.is_zero()).then(|| time.into()))
        }
        SocketOption::Linger2(time) => stack::SocketOption::Linger2(time.map(Into::into)),
        SocketOption::SynRetries(count) => stack::SocketOption::SynRetries(count),
        SocketOption::Ttl(ttl) => stack::SocketOption::Ttl(u8::try_from(ttl).unwrap_or(u8::MAX)),
        SocketOption::TypeOfService(value) => stack::SocketOption::Tos(value),
        SocketOption::ReuseAddress(on) => stack::SocketOption::ReuseAddress(on),
        SocketOption::ReusePort(on) => stack::SocketOption::ReusePort(on),
        SocketOption::Broadcast(on) => stack::SocketOption::Broadcast(on),
        SocketOption::MaxSegment(size) => {
            stack::SocketOption::MaxSegment(u16::try_from(size).ok().filter(|&size| size > 0))
        }
        SocketOption::ReceiveBuffer(bytes) => stack::SocketOption::ReceiveLimit(bytes),
        SocketOption::FastOpen(limit) => stack::SocketOption::FastOpen(limit),
        SocketOption::FastOpenConnect(on) => stack::SocketOption::FastOpenConnect(on),
        SocketOption::MtuDiscovery(manner) => stack::SocketOption::MtuDiscovery(manner),
        SocketOption::QueueErrors(on) => stack::SocketOption::QueueErrors(on),
        SocketOption::ReceiveRuns(on) => stack::SocketOption::ReceiveRuns(on),
        SocketOption::NotSentLowWater(bytes) => stack::SocketOption::TellSent(bytes > 0),
        SocketOption::DeferAccept(time) => {
            stack::SocketOption::DeferAccept((!time.is_zero()).then(|| time.into()))
        }
        SocketOption::SendBuffer(_)
        | SocketOption::Linger(_)
        | SocketOption::ReceiveLowWater(_)
        | SocketOption::UrgentInline(_) => return None,
    })
}
