//! Listeners: the queue of half-open connections, the queue of those to be accepted, and both their limits.
//!
//! As on Linux a full accept queue drops SYNs, and the last acknowledgement of handshakes that are under way, so that
//! the peer tries again. The queue of half-open connections is longer than the backlog, so that a burst of honest peers
//! fits. When it is full, SYNs are answered with cookies (`syn_cookies`). Where those are switched off, the oldest makes
//! room, once it has had time to answer: in a flood, whoever answers faster than the queue turns over still gets through.

use base::{Duration, Instant, SeqNumber};
use core::net::SocketAddr;

use crate::buffers::BufferFamily;
use crate::config::{SocketOptions, SynCookieMode};
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::list::List;
use crate::ports::Claim;
use crate::socket::{FamilyLinks, Kind, Listener, Queues, Socket, Stage, TcpSocket};
use crate::stack::{SocketId, Stack};
use crate::tcp_sockets::EarlyQueue;

/// Half-open connections that every listener may have, however small its backlog.
const MIN_HALF_OPEN: usize = 512;
/// A half-open connection has this long to answer before it may have to make room.
const HALF_OPEN_GRACE: Duration = Duration::from_millis(100);

impl<B: BufferFamily> Stack<B> {
    /// Listens; `local` as for [`tcp_bind`](Self::tcp_bind). `backlog` connections may wait to be accepted.
    ///
    /// # Errors
    /// As [`tcp_bind`](Self::tcp_bind).
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        owner: B::Owner,
        options: &SocketOptions,
    ) -> Result<SocketId, SocketError> {
        let id = self.tcp_bind(local, options)?;
        let listening = self.tcp_listen_bound(id, backlog, owner);
        if listening.is_err() {
            self.release_port(id.index);
            self.sockets.remove(id.index);
        }
        listening.map(|()| id)
    }

    /// A bound socket begins to listen.
    ///
    /// # Errors
    /// `AddressInUse`: another listens there. `InvalidArgument`: the socket is connected. `NotSupported` by UDP.
    pub fn tcp_listen_bound(
        &mut self,
        id: SocketId,
        backlog: usize,
        owner: B::Owner,
    ) -> Result<(), SocketError> {
        let socket = self.owned_mut(id)?;
        let (local, options) = match &socket.kind {
            Kind::Bound(bound) => (bound.local, bound.options.clone()),
            Kind::Listener(_) => {
                self.tcp_set_backlog(id, backlog);
                return Ok(());
            }
            Kind::Tcp(_) => return Err(SocketError::InvalidArgument),
            Kind::Udp(_) | Kind::Released => return Err(SocketError::NotSupported),
        };
        let Some(held) = socket.claim() else { return Err(SocketError::InvalidArgument) };
        let mut manner = held.manner;
        manner.listening = true;
        // Linux checks again when listening begins: beside a listener there is no sharing by SO_REUSEADDR.
        self.tcp_ports.release(&held);
        let claim = Claim { local, manner };
        if !self.tcp_ports.is_free(&claim) {
            self.tcp_ports.hold(&held);
            return Err(SocketError::AddressInUse);
        }
        self.tcp_ports.hold(&claim);
        let backlog = backlog.min(self.config.max_backlog);
        let socket = self.owned_mut(id)?;
        socket.manner = Some(manner);
        socket.kind = Kind::Listener(Box::new(Listener {
            local,
            backlog,
            unaccepted: 0,
            owner,
            options,
            queues: Queues { half_open: List::new(), half_open_len: 0, accept: List::new(), accept_len: 0 },
            cookies_until: Instant::ZERO,
            early: EarlyQueue::default(),
        }));
        self.listeners.insert(local, id.index);
        Ok(())
    }

    /// Changes a listener's backlog.
    pub fn tcp_set_backlog(&mut self, id: SocketId, backlog: usize) {
        let most = self.config.max_backlog;
        if let Some(listener) = self.sockets.get_mut(id.into()).and_then(|socket| socket.listener_mut()) {
            listener.backlog = backlog.min(most);
        }
    }

    /// Of those that were [accepted](Self::tcp_accept), so many still wait for a program behind the owner: they count against
    /// the backlog. Whether they leave less than half of it.
    pub fn tcp_set_unaccepted(&mut self, id: SocketId, unaccepted: usize) -> bool {
        let Some(listener) = self.sockets.get_mut(id.into()).and_then(|socket| socket.listener_mut()) else {
            return false;
        };
        listener.unaccepted = unaccepted;
        unaccepted > listener.backlog / 2
    }

    /// The oldest established connection that nobody has accepted; it is its accepter's now.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Option<SocketId> {
        let index = self.sockets.get_mut(listener.into())?.listener_mut()?.queues.accept.front()?;
        self.edit_queues(listener.index, |queues, links| {
            queues.accept.remove(links, index);
            queues.accept_len -= 1;
        });
        let accepted = self.sockets.get_index_mut(index)?;
        accepted.silent = false;
        accepted.tcp_mut()?.stage = Stage::Owned;
        self.key_of(index).map(SocketId::from)
    }

    /// How many connections wait to be accepted, and how many are half-open.
    pub fn tcp_backlog(&self, listener: SocketId) -> Option<(usize, usize)> {
        match &self.sockets.get(listener.into())?.kind {
            Kind::Listener(listener) => Some((listener.queues.accept_len, listener.queues.half_open_len)),
            Kind::Bound(_) | Kind::Tcp(_) | Kind::Udp(_) | Kind::Released => None,
        }
    }

    /// The listener for a flow that does not exist yet.
    pub(crate) fn find_listener(&self, tuple: &FourTuple) -> Option<u32> {
        let group = self.listeners.find(tuple.local);
        // With SO_REUSEPORT several listen: the flow chooses.
        let choice = self.tcp_flows.tag(tuple) as usize % group.len().max(1);
        group.get(choice).copied()
    }

    /// A SYN for a listener; the half-open connection that it makes, if it makes one.
    pub(crate) fn open_half(
        &mut self,
        now: Instant,
        index: u32,
        tuple: FourTuple,
        segment: &tcp::SegmentIn<'_>,
        at_least: Option<SeqNumber>,
    ) -> Option<u32> {
        let listener = self.listener_mut(index)?;
        if listener.accept_is_full() {
            self.stats.drop_listen_overflow += 1;
            return None;
        }
        let options = listener.options.clone();
        let crowded = listener.queues.half_open_len >= listener.backlog.max(MIN_HALF_OPEN)
            || self.half_open >= self.config.max_half_open;
        let mode = self.config.syn_cookies;
        let by_cookie = mode == SynCookieMode::Always || (crowded && mode == SynCookieMode::WhenFull);
        // A cookie cannot start beyond the sequence numbers of a connection in TIME-WAIT.
        if by_cookie && at_least.is_none() {
            self.answer_with_cookie(now, index, &tuple, segment);
            return None;
        }
        if (crowded || !self.has_socket_room()) && !self.drop_oldest_half_open(now, index) {
            self.stats.drop_syn_queue += 1;
            return None;
        }
        let Ok((link_mtu, path_mtu)) = self.mtus_to(now, tuple.local.ip(), tuple.remote.ip()) else {
            self.stats.drop_no_route += 1;
            return None;
        };
        let mut config = self.tcp_config(link_mtu, path_mtu, &options);
        config.remembered = self.remembered(now, tuple.remote.ip());
        let isn = self.isn.isn(now, tuple.local, tuple.remote);
        // RFC 1122 §4.2.2.13: a connection that follows one in TIME-WAIT starts beyond its last sequence number.
        let isn = at_least.map_or(isn, |least| isn.later(least));
        let offset = self.isn.timestamp_offset(tuple.local, tuple.remote);
        let mut connection =
            tcp::Connection::accept(now, &config, tuple.local, tuple.remote, isn, offset, segment);
        let early = self.answer_fast_open(now, index, &tuple, segment, &mut connection);
        let stage = if early { Stage::Queued } else { Stage::HalfOpen };
        let child = self.insert_child(now, index, connection, stage)?;
        if early {
            self.begin_early(index, child, segment);
        }
        self.schedule(child);
        self.sync_timer(child);
        Some(child)
    }

    /// A new connection of a listener, in its queue of half-open ones or in that of those to be accepted.
    pub(crate) fn insert_child(
        &mut self,
        now: Instant,
        index: u32,
        connection: tcp::Connection,
        stage: Stage,
    ) -> Option<u32> {
        let socket = self.sockets.get_index_mut(index)?;
        let (ttl, tos) = (socket.ttl, socket.tos);
        let listener = socket.listener_mut()?;
        let (owner, options) = (listener.owner.clone(), listener.options.clone());
        self.stats.tcp_passive_opens += 1;
        let mut tcp = TcpSocket::new(now, connection, B::stream(&owner), stage);
        tcp.parent = index;
        let tuple = tcp.tuple();
        let manner = super::connect::manner_of(&options, false);
        self.tcp_ports.hold(&Claim { local: tuple.local, manner });
        let mut socket = Socket::new(Kind::Tcp(tcp), Some(manner), &options, self.config.ttl);
        (socket.ttl, socket.tos) = (ttl, tos);
        socket.silent = true;
        let child = self.sockets.insert(socket).index;
        self.insert_flow(&tuple, Target::Socket(child));
        if stage == Stage::HalfOpen {
            self.half_open += 1;
            self.edit_queues(index, |queues, links| {
                queues.half_open.push_back(links, child);
                queues.half_open_len += 1;
            });
        } else {
            self.push_to_accept(index, child);
        }
        Some(child)
    }

    /// Whether the accept queue of a half-open connection's listener is full, so that its last acknowledgement has to
    /// be dropped.
    pub(crate) fn accept_is_full(&self, parent: u32) -> bool {
        match self.sockets.get_index(parent).map(|socket| &socket.kind) {
            Some(Kind::Listener(listener)) => listener.accept_is_full(),
            _ => false,
        }
    }

    /// A half-open connection is established: it waits to be accepted.
    pub(crate) fn queue_for_accept(&mut self, index: u32) {
        let Some(parent) = self.leave_half_open(index) else { return };
        if let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) {
            tcp.stage = Stage::Queued;
        }
        self.push_to_accept(parent, index);
    }

    fn push_to_accept(&mut self, listener: u32, child: u32) {
        self.edit_queues(listener, |queues, links| {
            queues.accept.push_back(links, child);
            queues.accept_len += 1;
        });
        self.mark_changed(listener);
    }

    /// A half-open connection has come to nothing: it goes when it has nothing more to say.
    pub(crate) fn drop_half_open(&mut self, index: u32) {
        if self.leave_half_open(index).is_none() {
            return;
        }
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        socket.orphan = true;
        self.orphans += 1;
        if let Some(tcp) = socket.tcp_mut() {
            tcp.stage = Stage::Owned;
        }
        self.schedule(index);
    }

    /// Makes room for a half-open connection; `false`: none has had its time yet.
    fn drop_oldest_half_open(&mut self, now: Instant, listener: u32) -> bool {
        let Some(oldest) = self.listener_mut(listener).and_then(|listener| listener.queues.half_open.front())
        else {
            return false;
        };
        let opened = self.sockets.get_index(oldest).and_then(|socket| socket.tcp()).map(|tcp| tcp.opened);
        if opened.is_none_or(|opened| now.saturating_since(opened) < HALF_OPEN_GRACE) {
            return false;
        }
        self.stats.drop_half_open += 1;
        self.forget_half_open(oldest);
        true
    }

    /// Takes a half-open connection away without a word, as if its SYN had never come.
    fn forget_half_open(&mut self, index: u32) {
        self.drop_half_open(index);
        self.leave_tables(index);
        self.release(index);
    }

    /// Takes a connection out of its listener's queue of half-open ones; returns the listener.
    fn leave_half_open(&mut self, index: u32) -> Option<u32> {
        let tcp = self.sockets.get_index(index)?.tcp()?;
        if tcp.stage != Stage::HalfOpen {
            return None;
        }
        let parent = tcp.parent;
        self.half_open -= 1;
        self.edit_queues(parent, |queues, links| {
            queues.half_open.remove(links, index);
            queues.half_open_len -= 1;
        });
        Some(parent)
    }

    /// A listener closes: half-open connections are forgotten, those that nobody accepted are reset.
    pub(crate) fn close_listener(&mut self, now: Instant, index: u32) {
        let Some(listener) = self.listener_mut(index) else { return };
        let local = listener.local;
        self.listeners.remove(local, index);
        while let Some(Kind::Listener(listener)) = self.sockets.get_index(index).map(|socket| &socket.kind) {
            if let Some(child) = listener.queues.half_open.front() {
                self.forget_half_open(child);
            } else if let Some(child) = listener.queues.accept.front() {
                self.edit_queues(index, |queues, links| {
                    queues.accept.remove(links, child);
                    queues.accept_len -= 1;
                });
                let Some(socket) = self.sockets.get_index_mut(child) else { continue };
                socket.orphan = true;
                self.orphans += 1;
                if let Some(tcp) = socket.tcp_mut() {
                    tcp.stage = Stage::Owned;
                }
                self.with_tcp(now, child, tcp::Connection::handle_abort);
            } else {
                break;
            }
        }
        self.release(index);
    }

    /// Changes a listener's queues: they are taken out while the links of their members are changed.
    fn edit_queues(&mut self, index: u32, edit: impl FnOnce(&mut Queues, &mut FamilyLinks<'_, B>)) {
        let Some(listener) = self.listener_mut(index) else { return };
        let mut queues = listener.queues;
        edit(&mut queues, &mut FamilyLinks(&mut self.sockets));
        if let Some(listener) = self.listener_mut(index) {
            listener.queues = queues;
        }
    }

    pub(crate) fn listener_mut(&mut self, index: u32) -> Option<&mut Listener<B>> {
        self.sockets.get_index_mut(index).and_then(|socket| socket.listener_mut())
    }
}

impl<B: BufferFamily> Listener<B> {
    /// As Linux counts: one more than the backlog may wait.
    pub(crate) fn accept_is_full(&self) -> bool {
        self.queues.accept_len + self.unaccepted > self.backlog
    }
}
