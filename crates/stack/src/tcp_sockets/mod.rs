//! TCP: what an owner calls, and how a connection is kept in step with the tables around it.
//!
//! Whatever happens to a connection, [`Stack::settle`] follows: it moves the socket between the queues of its listener,
//! tells its owner, schedules output, arms the timer, and takes it out of the tables when it is closed.

mod connect;
mod crowd;
mod cut_through;
mod fast_open;
mod gather;
mod input;
mod listen;
mod output;
mod restore;
mod run;
mod syn_cookies;
mod time_wait;

pub(crate) use crowd::Crowds;
pub(crate) use fast_open::{EarlyQueue, FastOpenState};
pub(crate) use gather::Gathered;
pub use restore::RestoreError;
pub(crate) use run::Run;
pub(crate) use run::Split;
pub(crate) use time_wait::TimeWaitRecord;

use base::Instant;
use core::net::IpAddr;
use tcp::{ReceiveBuffer, SendBuffer};

use crate::buffers::BufferFamily;
use crate::config::{SocketOption, SocketOptions};
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::path::Next;
use crate::slab::Key;
use crate::socket::{Kind, OutputPlace, Partner, Socket, Stage};
use crate::stack::{SocketId, Stack, Timer};

/// IP and TCP headers without options, which the MSS does not count (RFC 9293 §3.7.1).
const HEADERS_LEN: u16 = 40;

/// The smallest receive buffer that a socket may ask for (Linux: `SOCK_MIN_RCVBUF`).
const MIN_RECEIVE_BUFFER: u32 = 2304;

/// What an owner can see of a connection; compared before and after.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glance {
    state: tcp::State,
    acked_to: u64,
    received_to: u64,
    soft_error: Option<tcp::Error>,
    urgent_changes: u32,
}

impl Glance {
    pub(crate) fn at(connection: &tcp::Connection) -> Self {
        Self {
            state: connection.state(),
            acked_to: connection.acked_to(),
            received_to: connection.received_to(),
            soft_error: connection.soft_error(),
            urgent_changes: connection.urgent_changes(),
        }
    }

    fn is_opening(&self) -> bool {
        self.state == tcp::State::SynSent
    }
}

impl<B: BufferFamily> Socket<B> {
    /// Whether [`Stack::settle`] would change nothing after a segment that was just the next data: as in a batch of them
    /// after the first. Then the owner has been told, output is wanted already, and no timer has to be moved.
    #[inline]
    fn is_settled_after_data(&self, now: Instant) -> bool {
        let Some(tcp) = self.tcp() else { return true };
        let is_timed = || match tcp.connection.deadline() {
            Some(deadline) => tcp.timer.is_some() && tcp.armed <= deadline,
            None => true,
        };
        (self.changed.is_linked() || self.silent || tcp.stage != Stage::Owned)
            && (self.place != OutputPlace::Nowhere || !tcp.connection.wants_output(now))
            && !tcp.connection.is_drained()
            && tcp.early_of.is_none()
            && is_timed()
    }
}

impl<B: BufferFamily> Stack<B> {
    /// The connection of a socket, for its getters.
    pub fn tcp(&self, id: SocketId) -> Option<&tcp::Connection> {
        self.sockets.get(id.into())?.tcp().map(|tcp| &tcp.connection)
    }

    /// What `TCP_INFO` tells of a TCP socket; `None` of another.
    pub fn tcp_info(&self, now: Instant, id: SocketId) -> Option<tcp::TcpInfo> {
        match &self.sockets.get(id.into())?.kind {
            Kind::Tcp(tcp) => Some(tcp.connection.tcp_info(now)),
            Kind::Listener(listener) => {
                let waiting = (listener.queues.accept_len + listener.unaccepted) as u32;
                Some(tcp::TcpInfo::of_listener(waiting, listener.backlog as u32))
            }
            Kind::Bound(_) => Some(tcp::TcpInfo::of_closed()),
            Kind::Udp(_) | Kind::Released => None,
        }
    }

    /// The buffers of a connection.
    pub fn stream(&mut self, id: SocketId) -> Option<&mut B::Stream> {
        self.sockets.get_mut(id.into())?.tcp_mut().map(|tcp| &mut tcp.stream)
    }

    /// Whether its owner wants to hear of what is sent ([`SocketOption::TellSent`]).
    pub fn tells_sent(&self, id: SocketId) -> bool {
        self.sockets.get(id.into()).is_some_and(|socket| socket.wants.sent())
    }

    /// Both at once.
    pub fn tcp_and_stream(&mut self, id: SocketId) -> Option<(&tcp::Connection, &mut B::Stream)> {
        self.sockets.get_mut(id.into())?.tcp_mut().map(|tcp| (&tcp.connection, &mut tcp.stream))
    }

    /// The send stream is queued up to the offset `queued_to`.
    pub fn tcp_send(&mut self, id: SocketId, queued_to: u64) {
        self.tell_tcp(id, |connection| connection.handle_send(queued_to));
    }

    /// As [`tcp_send`](Self::tcp_send), and more follows at once (`MSG_MORE`).
    pub fn tcp_send_more(&mut self, id: SocketId, queued_to: u64) {
        self.tell_tcp(id, |connection| connection.handle_send_more(queued_to));
    }

    /// As [`tcp_send`](Self::tcp_send), and the byte before the offset `urgent_to` is urgent (`MSG_OOB`).
    pub fn tcp_send_urgent(&mut self, id: SocketId, queued_to: u64, urgent_to: u64) {
        self.tell_tcp(id, |connection| connection.handle_send_urgent(queued_to, urgent_to));
    }

    /// The receive stream has been read up to the offset `consumed_to`.
    pub fn tcp_consumed(&mut self, now: Instant, id: SocketId, consumed_to: u64) {
        let Some(tcp) = self.sockets.get_mut(id.into()).and_then(|socket| socket.tcp_mut()) else { return };
        tcp.connection.set_window_share(tcp.stream.share());
        tcp.connection.handle_consumed(now, consumed_to);
        match tcp.partner {
            Partner::Remote => self.schedule(id.index),
            Partner::Joined(partner) => self.schedule_partner(now, partner),
            Partner::Gone => {}
        }
    }

    /// Nothing more will be queued: a FIN follows.
    pub fn tcp_shutdown(&mut self, id: SocketId) {
        self.tell_tcp(id, tcp::Connection::handle_shutdown);
    }

    /// The connection is given up at once: a reset. Its owner still closes it.
    pub fn tcp_abort(&mut self, id: SocketId) {
        self.tell_tcp(id, tcp::Connection::handle_abort);
        if let Some(Kind::Tcp(_)) = self.sockets.get(id.into()).map(|socket| &socket.kind) {
            self.mark_changed(id.index);
        }
    }

    pub(crate) fn set_tcp_option(
        &mut self,
        now: Instant,
        id: SocketId,
        option: SocketOption,
    ) -> Result<(), SocketError> {
        let socket = self.owned_mut(id)?;
        match &mut socket.kind {
            Kind::Tcp(tcp) => apply_option(now, &mut tcp.connection, option),
            Kind::Bound(bound) => bound.options.apply(option),
            Kind::Listener(listener) => listener.options.apply(option),
            Kind::Udp(_) => return Err(SocketError::NotSupported),
            Kind::Released => return Err(SocketError::NoSuchSocket),
        }
        if matches!(socket.kind, Kind::Tcp(_)) {
            self.schedule(id.index);
        }
        Ok(())
    }

    /// Tells an owned connection something that may make it send; what comes of it is settled when it is polled.
    fn tell_tcp(&mut self, id: SocketId, tell: impl FnOnce(&mut tcp::Connection)) {
        let Some(socket) = self.sockets.get_mut(id.into()) else { return };
        let tells_sent = socket.wants.sent();
        let Some(tcp) = socket.tcp_mut() else { return };
        tell(&mut tcp.connection);
        if tells_sent {
            // Whatever comes of it: that it was heard is news.
            self.note_sent(id.index);
        }
        self.schedule(id.index);
    }

    /// Something was queued or sent on a connection whose owner wants to hear of that.
    pub(crate) fn note_sent(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_index(index) else { return };
        if !socket.silent && socket.tcp().is_some_and(|tcp| tcp.stage == Stage::Owned) {
            self.mark_changed(index);
        }
    }

    /// Does something to a connection and settles what follows from it.
    pub(crate) fn with_tcp<R: Default>(
        &mut self,
        now: Instant,
        index: u32,
        act: impl FnOnce(&mut tcp::Connection) -> R,
    ) -> R {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else {
            return R::default();
        };
        let before = Glance::at(&tcp.connection);
        let result = act(&mut tcp.connection);
        self.settle(now, index, before);
        result
    }

    /// What stands behind a flow.
    pub(crate) fn find_tcp(&mut self, tuple: &FourTuple) -> Option<Target> {
        let (sockets, time_waits) = (&self.sockets, &self.time_waits);
        self.tcp_flows.find(tuple, |target| match target {
            Target::Socket(index) => sockets
                .get_index(index)
                .and_then(|socket| socket.tcp())
                .is_some_and(|tcp| tcp.tuple() == *tuple),
            Target::TimeWait(index) => {
                time_waits.get_index(index).is_some_and(|record| record.tuple == *tuple)
            }
        })
    }

    /// A socket's timer fired.
    pub(crate) fn on_socket_timer(&mut self, now: Instant, index: u32) {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        tcp.timer = None;
        let before = Glance::at(&tcp.connection);
        if tcp.connection.deadline().is_some_and(|deadline| deadline <= now) {
            tcp.connection.handle_deadline(now);
        }
        // Of a joined connection, this may have been the time to try again what found no memory.
        self.settle(now, index, before);
    }

    /// Keeps everything around a connection in step with it.
    pub(crate) fn settle(&mut self, now: Instant, index: u32, before: Glance) {
        self.settle_with(now, index, before, false);
    }

    /// The same; `polled`: output has just been polled until there was none.
    pub(crate) fn settle_with(&mut self, now: Instant, index: u32, before: Glance, polled: bool) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let (orphan, silent) = (socket.orphan, socket.silent);
        let Some(tcp) = socket.tcp_mut() else { return };
        let after = Glance::at(&tcp.connection);
        if tcp.connection.is_drained() {
            tcp.connection.handle_send_blocked(now, tcp.stream.is_blocked());
        }
        let (stage, wants_output) = (tcp.stage, !polled && tcp.connection.wants_output(now));
        let early_is_over = tcp.early_of.is_some() && !tcp.connection.is_early();
        if after.acked_to != before.acked_to
            && let Some(Next::Neighbour(key)) = tcp.path.map(|cached| cached.path.next)
            && let Some(entry) = self.neighbours.get_mut(key)
        {
            entry.on_confirmed_from_above(now);
        }
        if early_is_over {
            self.end_early(now, index);
        }
        if after.state != before.state {
            self.on_state_changed(now, index, (before.state, after.state), stage);
            if after.state == tcp::State::Closed {
                self.remember_path(now, index);
            }
        }
        if after.state == tcp::State::Closed {
            self.leave_tables(index);
        }
        if after != before && stage == Stage::Owned && !silent {
            self.mark_changed(index);
        }
        if wants_output {
            self.schedule(index);
        } else if orphan && after.state == tcp::State::Closed {
            self.release(index);
            return;
        } else if orphan && after.state == tcp::State::TimeWait {
            self.enter_time_wait(now, index);
            return;
        }
        self.sync_timer(index);
    }

    fn on_state_changed(
        &mut self,
        now: Instant,
        index: u32,
        (before, after): (tcp::State, tcp::State),
        stage: Stage,
    ) {
        if before == tcp::State::SynSent && after == tcp::State::Closed {
            self.note_failed_fast_open(now, index);
        }
        if !before.is_synchronised() && after.is_synchronised() {
            self.stats.tcp_established += 1;
        }
        match stage {
            Stage::HalfOpen if after == tcp::State::Closed => self.drop_half_open(index),
            Stage::HalfOpen if after.is_synchronised() => self.queue_for_accept(index),
            Stage::HalfOpen | Stage::Queued | Stage::Owned => {}
        }
    }

    /// A closed connection is in nobody's way: its flow and its port are free.
    pub(crate) fn leave_tables(&mut self, index: u32) {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        if core::mem::replace(&mut tcp.in_flows, false) {
            let tuple = tcp.tuple();
            self.remove_flow(&tuple, Target::Socket(index));
            self.release_port(index);
        }
    }

    /// Arms the socket's one timer. A timer that stands earlier than the deadline stays: when it fires the deadline is
    /// looked at again. So a deadline that every segment moves on costs nothing.
    pub(crate) fn sync_timer(&mut self, index: u32) {
        let deadline = self.sockets.get_index(index).and_then(|socket| socket.tcp()?.connection.deadline());
        if let Some(deadline) = deadline {
            self.arm_by(deadline, index);
        }
    }

    /// The socket's timer fires no later than `deadline`.
    pub(crate) fn arm_by(&mut self, deadline: Instant, index: u32) {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        if let Some(timer) = tcp.timer {
            if tcp.armed <= deadline {
                return;
            }
            self.wheel.cancel(timer);
        }
        tcp.armed = deadline;
        tcp.timer = Some(self.wheel.arm(deadline, Timer::Socket(index)));
    }

    /// The owner lets go of a connection.
    pub(crate) fn close_tcp(&mut self, now: Instant, index: u32) {
        let crowded = self.orphans >= self.config.max_orphans;
        let patience = self.config.orphan_timeout;
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        socket.orphan = true;
        self.orphans += 1;
        if crowded {
            self.stats.orphans_reset += 1;
        }
        self.with_tcp(now, index, |connection| {
            let patience = connection.user_timeout().map_or(patience, |own| own.min(patience));
            connection.set_user_timeout(Some(patience));
            connection.handle_close(now);
            if crowded {
                connection.handle_abort();
            }
        });
    }

    /// No packet reaches the peer now: what the connection has to send counts as lost on the way.
    pub(crate) fn on_unreachable(&mut self, now: Instant, index: u32, error: tcp::IcmpError) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let Some(tcp) = socket.tcp_mut() else {
            self.schedule(index);
            return;
        };
        let before = Glance::at(&tcp.connection);
        let limit = tcp::OutputLimit { max_payload: 0 };
        let mut last = None;
        while let Some(segment) = tcp.connection.poll_segment(now, &limit) {
            self.stats.drop_neighbour_failed += 1;
            last = Some(segment.header);
        }
        let is_opening = matches!(tcp.connection.state(), tcp::State::SynSent | tcp::State::SynReceived);
        let tuple = tcp.tuple();
        if let Some(header) = last {
            tcp.connection.handle_icmp_error(error, header.seq);
            if is_opening {
                let mut bytes = [0; wire::tcp::MAX_HEADER_LEN];
                let length = header.emit(&mut bytes);
                self.on_attempt_undeliverable(index, &tuple, &bytes[..length]);
            }
        }
        // What is still wanted waits for a timer: asking again at once would be to ask for ever.
        self.settle_with(now, index, before, true);
    }

    /// A configuration for a connection over a link with this MTU.
    pub(crate) fn tcp_config(&self, link_mtu: u16, path_mtu: u16, options: &SocketOptions) -> tcp::Config {
        let mut config = self.config.tcp.clone();
        let most = options.max_segment.unwrap_or(u16::MAX);
        config.mss = path_mtu.saturating_sub(HEADERS_LEN);
        config.announced_mss = link_mtu.saturating_sub(HEADERS_LEN).min(most);
        config.nodelay |= options.nodelay;
        config.cork |= options.cork;
        config.quickack |= options.quickack;
        config.congestion = options.congestion.unwrap_or(config.congestion);
        config.keepalive = options.keepalive.or(config.keepalive);
        config.user_timeout = options.user_timeout.or(config.user_timeout);
        config.defer_accept = options.defer_accept.unwrap_or(config.defer_accept);
        config.syn_retries = options.syn_retries.unwrap_or(config.syn_retries);
        if let Some(linger2) = options.linger2 {
            config.fin_wait_2 = linger2;
        }
        if let Some(limit) = options.receive_limit {
            // As on Linux, it is not tuned then.
            let limit = limit.max(MIN_RECEIVE_BUFFER);
            config.window_limit = limit;
            config.initial_window = limit;
        }
        config
    }

    /// The MTUs of the link, as far as the route allows it, and of the whole way to a peer.
    pub(crate) fn mtus_to(
        &self,
        now: Instant,
        source: IpAddr,
        remote: IpAddr,
    ) -> Result<(u16, u16), SocketError> {
        let (interface, _, _) = self.route_to(source, remote)?;
        let link = self.link_mtu(interface, remote);
        let path = match remote {
            IpAddr::V4(remote) => self.mtu_towards(now, interface, remote),
            IpAddr::V6(_) => return Err(SocketError::FamilyNotSupported),
        };
        Ok((link, path))
    }

    /// Whether there is room for one more socket.
    pub(crate) fn has_socket_room(&self) -> bool {
        self.sockets.len() < self.config.max_sockets
    }

    pub(crate) fn key_of(&self, index: u32) -> Option<Key> {
        self.sockets.key_at(index)
    }
}

fn apply_option(now: Instant, connection: &mut tcp::Connection, option: SocketOption) {
    match option {
        SocketOption::NoDelay(on) => connection.set_nodelay(on),
        SocketOption::Cork(on) => connection.set_cork(on),
        SocketOption::QuickAck(on) => connection.set_quickack(on),
        SocketOption::Congestion(algorithm) => connection.set_congestion(algorithm),
        SocketOption::Keepalive(keepalive) => connection.set_keepalive(now, keepalive),
        SocketOption::ReceiveLimit(limit) => connection.set_receive_limit(limit.max(MIN_RECEIVE_BUFFER)),
        SocketOption::UserTimeout(timeout) => connection.set_user_timeout(timeout),
        SocketOption::Linger2(Some(time)) => connection.set_linger2(time),
        // These count before a connection is opened; the MSS that was announced stands (tcp(7)).
        SocketOption::FastOpen(_)
        | SocketOption::FastOpenConnect(_)
        | SocketOption::DeferAccept(_)
        | SocketOption::MaxSegment(_)
        | SocketOption::Linger2(None)
        | SocketOption::SynRetries(_)
        | SocketOption::ReuseAddress(_)
        | SocketOption::ReusePort(_)
        | SocketOption::Broadcast(_)
        | SocketOption::Ttl(_)
        | SocketOption::Tos(_)
        | SocketOption::TellSent(_)
        | SocketOption::QueueErrors(_)
        | SocketOption::ReceiveRuns(_)
        | SocketOption::MtuDiscovery(_) => {}
    }
}
