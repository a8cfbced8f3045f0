//! Applications at work: opening, accepting, writing, reading, ending, and surviving a restart.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::Duration;
use stack::{Change, SocketId};

use super::World;
use crate::application::{End, Pace, Plan, Read, Stage};
use crate::buffers::SimBuffers;
use crate::host::address;
use crate::schedule::Event;

/// Connections that may wait at a simulated listener.
const BACKLOG: usize = 1024;

impl<B: SimBuffers> World<B> {
    /// Tells a host's applications what has changed; whether anything had.
    pub(super) fn run_applications(&mut self, host: u16) -> bool {
        let mut any = false;
        while let Some(change) = self.hosts[usize::from(host)].stack.poll_changed() {
            any = true;
            match change {
                Change::Updated(id) => match self.on_socket.get(&(host, id)) {
                    Some(&endpoint) => self.step_endpoint(endpoint),
                    None => self.accept(host, id),
                },
                Change::Released { id, .. } => self.on_released(host, id),
            }
        }
        any
    }

    /// An endpoint does what its plan says and its connection allows.
    pub(super) fn step_endpoint(&mut self, number: u32) {
        let endpoint = &self.endpoints[number as usize];
        match endpoint.stage {
            Stage::Waiting if is_client(number) => self.open(number),
            Stage::Waiting | Stage::Released => {}
            Stage::Open | Stage::Closed => {
                self.transfer(number);
                self.finish(number);
            }
        }
        let wake = self.endpoints[number as usize].wake(self.now);
        self.schedule.set(Event::Application(number), wake);
    }

    /// Makes the listeners of a host that it lacks.
    pub(super) fn listen_again(&mut self, host: u16) {
        let node = &mut self.hosts[usize::from(host)];
        let mut failed = None;
        for listener in self.listeners.iter_mut().filter(|one| one.host == host && one.socket.is_none()) {
            let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listener.port);
            match node.stack.tcp_listen(local, BACKLOG, node.owner.clone(), &listener.options) {
                Ok(socket) => listener.socket = Some(socket),
                Err(error) => failed = Some((listener.port, error)),
            }
        }
        if let Some((port, error)) = failed {
            self.report(format!("host {host} cannot listen on port {port}: {error:?}"));
        }
    }

    /// Closes all listeners, at the end of a world; a host that restarts after that makes no new ones.
    pub(super) fn close_listeners(&mut self) {
        for listener in core::mem::take(&mut self.listeners) {
            let node = &mut self.hosts[usize::from(listener.host)];
            if let Some(socket) = listener.socket {
                let shown = node.clock(self.now);
                // The socket is a listener that nobody has closed.
                let _ = node.stack.close(shown, socket);
                self.schedule.set_by(Event::Host(u32::from(listener.host)), self.now);
            }
        }
    }

    /// A host's stack is replaced: connections go on from their snapshots, everything else is forgotten.
    pub(super) fn on_restart(&mut self, host: u16) {
        self.restarted[usize::from(host)] = true;
        let now = self.now;
        let mut old = self.hosts[usize::from(host)].restart(now);
        for listener in self.listeners.iter_mut().filter(|listener| listener.host == host) {
            listener.socket = None;
        }
        // Before the connections: a port that they hold cannot be listened on (as on Linux, without SO_REUSEADDR).
        self.listen_again(host);
        let mut sockets: Vec<(SocketId, u32)> =
            self.on_socket.iter().filter(|((at, _), _)| *at == host).map(|((_, id), n)| (*id, *n)).collect();
        sockets.sort_unstable();
        for (id, number) in sockets {
            self.on_socket.remove(&(host, id));
            let options = self.endpoints[number as usize].plan.options.clone();
            let snapshot = old.snapshot(id);
            let stream = old.stream(id).map(|stream| stream.clone());
            let node = &mut self.hosts[usize::from(host)];
            let shown = node.clock(now);
            let restored = match (snapshot, stream) {
                (Some(snapshot), Some(stream)) => node
                    .stack
                    .restore_tcp(shown, &snapshot, stream, &options)
                    .map_err(|error| error.to_string()),
                _ => Err("it has no snapshot".to_owned()),
            };
            match restored {
                Ok(id) => {
                    self.on_socket.insert((host, id), number);
                    self.endpoints[number as usize].socket = Some(id);
                }
                Err(error) => self.report(format!("endpoint {number} is not restored: {error}")),
            }
        }
        let here = (0..self.endpoints.len()).filter(|n| self.endpoints[*n].host == host);
        for number in here.collect::<Vec<_>>() {
            if self.endpoints[number].stage == Stage::Open {
                self.step_endpoint(number as u32);
            }
        }
    }

    fn open(&mut self, number: u32) {
        let spec = &self.specs[number as usize / 2];
        let (client, server, port) = (spec.client, spec.server, spec.port);
        let endpoint = &mut self.endpoints[number as usize];
        let node = &mut self.hosts[usize::from(client)];
        let mut stream = B::stream(&node.owner);
        B::identify(&mut stream, endpoint.send_phase, endpoint.receive_phase);
        let remote = SocketAddr::new(IpAddr::V4(address(server)), port);
        let shown = node.clock(self.now);
        match node.stack.tcp_connect(shown, None, remote, stream, &endpoint.plan.options) {
            Ok(id) => {
                let local_port = node.stack.local_addr(id).map_or(0, |local| local.port());
                endpoint.socket = Some(id);
                endpoint.stage = Stage::Open;
                endpoint.progress = self.now;
                self.on_socket.insert((client, id), number);
                let ends = (client, local_port, server, port);
                self.expected.insert(ends, number + 1);
                // A SYN that waits for the first bytes, to carry them.
                if self.hosts[usize::from(client)].stack.tcp(id).is_some_and(tcp::Connection::awaits_data) {
                    self.begun_with_data.insert(ends);
                    self.transfer(number);
                } else {
                    self.begun_with_data.remove(&ends);
                }
            }
            Err(error) => self.report(format!("endpoint {number} cannot connect: {error:?}")),
        }
    }

    fn accept(&mut self, host: u16, listener: SocketId) {
        loop {
            let node = &mut self.hosts[usize::from(host)];
            let Some(id) = node.stack.tcp_accept(listener) else { return };
            let local = node.stack.local_addr(id).map_or(0, |local| local.port());
            let client = node.stack.remote_addr(id).map(|remote| (host_of(remote.ip()), remote.port()));
            let ends = client.map(|(client, port)| (client, port, host, local));
            let expected = ends.and_then(|ends| self.expected.remove(&ends));
            let Some(number) = expected else {
                // The client has forgotten it, or its SYN was an old duplicate.
                let shown = node.clock(self.now);
                let _ = node.stack.close(shown, id);
                // RFC 7413 §2.1: a SYN with data, and its plain repetition, may be taken once more when the server is done
                // with the first connection, since no handshake stands between.
                if !ends.is_some_and(|ends| self.begun_with_data.contains(&ends)) {
                    self.report(format!("host {host} accepts a connection that nobody opened: {client:?}"));
                }
                continue;
            };
            let endpoint = &mut self.endpoints[number as usize];
            if let Some(stream) = node.stack.stream(id) {
                B::identify(stream, endpoint.send_phase, endpoint.receive_phase);
            }
            // It was given up when its client was, but comes all the same.
            self.finished -= usize::from(endpoint.stage == Stage::Released);
            endpoint.socket = Some(id);
            endpoint.stage = Stage::Open;
            endpoint.progress = self.now;
            self.on_socket.insert((host, id), number);
            self.step_endpoint(number);
        }
    }

    /// Moves bytes both ways as far as the plan and the connection allow.
    fn transfer(&mut self, number: u32) {
        let now = self.now;
        let endpoint = &mut self.endpoints[number as usize];
        let node = &mut self.hosts[usize::from(endpoint.host)];
        let shown = node.clock(now);
        let Some(id) = endpoint.socket else { return };
        let Some((connection, stream)) = node.stack.tcp_and_stream(id) else { return };
        let acked = connection.acked_to();
        if acked > endpoint.acked {
            endpoint.progress = now;
            endpoint.acked = acked;
            B::release(stream, acked);
        }
        let awaits_data = connection.awaits_data();
        if endpoint.stage == Stage::Closed || (connection.state() == tcp::State::SynSent && !awaits_data) {
            return;
        }
        if connection.error().is_none() && !awaits_data {
            endpoint.established.get_or_insert(now);
        }
        let received = connection.received_to();
        let until = match endpoint.plan.read {
            Read::Eager => received,
            Read::Slow { .. } if now < endpoint.next_read => endpoint.read,
            Read::Slow { bytes, every } => {
                let until = received.min(endpoint.read + bytes);
                if until > endpoint.read {
                    endpoint.next_read = now + every;
                }
                until
            }
        };
        let peer_closed = connection.is_peer_closed();
        let failed = connection.error().is_some();
        let mut problem = None;
        if until > endpoint.read {
            problem = B::read(stream, endpoint.receive_phase, endpoint.read..until).err();
            endpoint.read = until;
            endpoint.progress = now;
        }
        endpoint.saw_end |= peer_closed && endpoint.read == received;
        let wanted = endpoint.plan.allowed(endpoint.read).min(endpoint.target(now));
        let before = endpoint.queued;
        while !failed && !endpoint.shut && endpoint.queued < wanted {
            let room = endpoint.plan.buffer.saturating_sub(endpoint.queued - acked);
            let len = (wanted - endpoint.queued).min(room).min(endpoint.plan.chunk as u64);
            if len == 0 {
                break;
            }
            endpoint.queued = B::write(stream, endpoint.send_phase, len as usize);
        }
        let (read, queued) = (endpoint.read, endpoint.queued);
        if read > 0 {
            node.stack.tcp_consumed(shown, id, read);
        }
        if queued > before {
            node.stack.tcp_send(id, queued);
        }
        if let Some(problem) = problem {
            self.report(format!("endpoint {number}: {problem}"));
        }
    }

    /// Ends a conversation when its plan says so.
    fn finish(&mut self, number: u32) {
        let now = self.now;
        let peer_target = self.endpoints[number as usize ^ 1].target(now);
        let endpoint = &mut self.endpoints[number as usize];
        let (Some(id), Stage::Open) = (endpoint.socket, endpoint.stage) else { return };
        let node = &mut self.hosts[usize::from(endpoint.host)];
        let Some(connection) = node.stack.tcp(id) else { return };
        if let Some(error) = connection.error() {
            endpoint.error = Some(error);
            self.close(number);
            return;
        }
        let Some(established) = endpoint.established else { return };
        let sent_all = endpoint.queued >= endpoint.target(now);
        let received_all = endpoint.read >= peer_target;
        match endpoint.plan.end {
            End::Abort(after) if now >= established + after => {
                node.stack.tcp_abort(id);
                endpoint.error = Some(tcp::Error::Aborted);
                self.close(number);
            }
            End::Orderly | End::Abort(_) => {
                if sent_all && !endpoint.shut {
                    endpoint.shut = true;
                    node.stack.tcp_shutdown(id);
                }
                if endpoint.shut && endpoint.saw_end {
                    self.close(number);
                }
            }
            End::CloseAtOnce if sent_all => self.close(number),
            End::Linger(after) if sent_all && received_all => {
                let complete = *endpoint.complete.get_or_insert(now);
                if now >= complete + after || endpoint.saw_end {
                    self.close(number);
                }
            }
            End::CloseAtOnce | End::Linger(_) => {}
        }
    }

    /// An application loses its patience.
    pub(super) fn give_up(&mut self, number: u32) {
        let endpoint = &mut self.endpoints[number as usize];
        let Some(id) = endpoint.socket.filter(|_| endpoint.stage == Stage::Open) else { return };
        endpoint.error = Some(tcp::Error::Aborted);
        let host = endpoint.host;
        self.hosts[usize::from(host)].stack.tcp_abort(id);
        self.close(number);
        self.schedule.set_by(Event::Host(u32::from(host)), self.now);
    }

    fn close(&mut self, number: u32) {
        let endpoint = &mut self.endpoints[number as usize];
        let Some(id) = endpoint.socket else { return };
        endpoint.stage = Stage::Closed;
        endpoint.progress = self.now;
        let node = &mut self.hosts[usize::from(endpoint.host)];
        let shown = node.clock(self.now);
        if let Err(error) = node.stack.close(shown, id) {
            self.report(format!("endpoint {number} cannot close: {error:?}"));
        }
    }

    fn on_released(&mut self, host: u16, id: SocketId) {
        // A listener that was closed is released too.
        let Some(number) = self.on_socket.remove(&(host, id)) else { return };
        let endpoint = &mut self.endpoints[number as usize];
        if endpoint.stage != Stage::Closed {
            self.report(format!("endpoint {number} is released although nobody closed it"));
            return;
        }
        endpoint.stage = Stage::Released;
        endpoint.socket = None;
        endpoint.progress = self.now;
        self.finished += 1;
        // A server that never heard of a connection that failed has nothing more to do.
        let peer = number as usize ^ 1;
        if is_client(number) && self.endpoints[peer].stage == Stage::Waiting {
            self.endpoints[peer].stage = Stage::Released;
            self.finished += 1;
        }
    }
}

/// Clients have even numbers.
const fn is_client(number: u32) -> bool {
    number & 1 == 0
}

/// The host with an address.
fn host_of(ip: IpAddr) -> u16 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().wrapping_sub(0x0a00_0001) as u16,
        IpAddr::V6(_) => u16::MAX,
    }
}

/// Whether a pair of plans can come to an end: turns that add up, and nobody who sends to one that has closed.
pub(super) fn plans_fit(client: &Plan, server: &Plan) -> bool {
    let closes_at_once = |plan: &Plan| plan.end == End::CloseAtOnce;
    let turns = |plan: &Plan| matches!(plan.pace, Pace::Turns { .. });
    !(closes_at_once(client) && server.send > 0
        || closes_at_once(server) && client.send > 0
        || turns(client) != turns(server))
}

/// The longest span that a plan spends without moving anything by its own will.
pub(super) fn longest_pause(plan: &Plan) -> Duration {
    let end = match plan.end {
        End::Linger(after) | End::Abort(after) => after,
        End::Orderly | End::CloseAtOnce => Duration::ZERO,
    };
    let read = match plan.read {
        Read::Slow { every, .. } => every,
        Read::Eager => Duration::ZERO,
    };
    end.max(read)
}
