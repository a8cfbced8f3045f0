//! Binding and connecting: which ends a connection gets.

use base::Instant;
use core::net::SocketAddr;

use crate::buffers::BufferFamily;
use crate::config::SocketOptions;
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::list::NIL;
use crate::ports::{Claim, Manner};
use crate::socket::{Bound, Kind, Socket, Stage, TcpSocket};
use crate::stack::{SocketId, Stack, canonical};

impl<B: BufferFamily> Stack<B> {
    /// Takes an address and a port (0: an ephemeral one) without listening or connecting yet.
    ///
    /// # Errors
    /// `AddressNotAvailable`: not an address of ours, or no port is free. `AddressInUse`. `TooManySockets`.
    pub fn tcp_bind(&mut self, local: SocketAddr, options: &SocketOptions) -> Result<SocketId, SocketError> {
        if !self.has_socket_room() {
            return Err(SocketError::TooManySockets);
        }
        let claim = self.claim_tcp(local, options, false)?;
        let bound = Bound { local: claim.local, options: options.clone() };
        let kind = Kind::Bound(Box::new(bound));
        Ok(self.sockets.insert(Socket::new(kind, Some(claim.manner), options, self.config.ttl)).into())
    }

    /// Opens a connection; `local` as for [`tcp_bind`](Self::tcp_bind), or chosen by the stack. The socket is changed
    /// when it is established or has failed.
    ///
    /// # Errors
    /// `NetworkUnreachable`: no route, or not an address of one host. `AddressNotAvailable`: not an address of ours, no
    /// port is free, or the connection exists. `AddressInUse`. `TooManySockets`. `FamilyNotSupported`.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        buffers: B::Stream,
        options: &SocketOptions,
    ) -> Result<SocketId, SocketError> {
        if let Some(local) = local {
            let id = self.tcp_bind(local, options)?;
            let connected = self.tcp_connect_bound(now, id, remote, buffers);
            if connected.is_err() {
                self.release_port(id.index);
                self.sockets.remove(id.index);
            }
            return connected.map(|()| id);
        }
        if !self.has_socket_room() {
            return Err(SocketError::TooManySockets);
        }
        let any = SocketAddr::new(core::net::Ipv4Addr::UNSPECIFIED.into(), 0);
        let tuple = self.tuple_to(now, any, remote)?;
        let tcp = self.start_connection(now, tuple, buffers, options)?;
        let manner = manner_of(options, false);
        self.tcp_ports.hold(&Claim { local: tuple.local, manner });
        let socket = Socket::new(Kind::Tcp(tcp), Some(manner), options, self.config.ttl);
        let key = self.sockets.insert(socket);
        self.insert_flow(&tuple, Target::Socket(key.index));
        self.schedule(key.index);
        Ok(key.into())
    }

    /// Opens a connection from a socket that is bound. If it fails, the socket stays bound.
    ///
    /// # Errors
    /// As [`tcp_connect`](Self::tcp_connect); `AlreadyConnected`, `NotSupported` by other kinds of sockets.
    pub fn tcp_connect_bound(
        &mut self,
        now: Instant,
        id: SocketId,
        remote: SocketAddr,
        buffers: B::Stream,
    ) -> Result<(), SocketError> {
        let (local, options) = match &self.owned_mut(id)?.kind {
            Kind::Bound(bound) => (bound.local, bound.options.clone()),
            Kind::Tcp(_) => return Err(SocketError::AlreadyConnected),
            Kind::Listener(_) | Kind::Udp(_) | Kind::Released => return Err(SocketError::NotSupported),
        };
        let tuple = self.tuple_to(now, local, remote)?;
        let tcp = self.start_connection(now, tuple, buffers, &options)?;
        // The port is now held with the address that connecting chose.
        self.release_port(id.index);
        let manner = Manner { explicit: true, ..manner_of(&options, false) };
        self.tcp_ports.hold(&Claim { local: tuple.local, manner });
        let socket = self.owned_mut(id)?;
        socket.kind = Kind::Tcp(tcp);
        socket.manner = Some(manner);
        self.insert_flow(&tuple, Target::Socket(id.index));
        self.schedule(id.index);
        Ok(())
    }

    /// Holds an address and a port for a socket that was given them.
    pub(crate) fn claim_tcp(
        &mut self,
        local: SocketAddr,
        options: &SocketOptions,
        listening: bool,
    ) -> Result<Claim, SocketError> {
        let local = canonical(local, options.v6_only)?;
        if !local.ip().is_unspecified() && !self.is_local(local.ip()) {
            return Err(SocketError::AddressNotAvailable);
        }
        let manner = Manner { explicit: true, ..manner_of(options, listening) };
        let mut claim = Claim { local, manner };
        if local.port() == 0 {
            let random = self.rng.next_u64();
            let port = self.tcp_ports.pick_for_bind(claim, random).ok_or(SocketError::AddressInUse)?;
            claim.local.set_port(port);
        } else if !self.tcp_ports.is_free(&claim) {
            return Err(SocketError::AddressInUse);
        }
        self.tcp_ports.hold(&claim);
        Ok(claim)
    }

    /// Both ends of a connection from `local`, what is unspecified of it chosen, to `remote`.
    fn tuple_to(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<FourTuple, SocketError> {
        let mut remote = canonical(remote, true).map_err(|_| SocketError::NetworkUnreachable)?;
        if remote.ip().is_unspecified() {
            // As on Linux, "this host".
            let own = self.locals.iter().find(|(address, _)| address.is_ipv4());
            remote.set_ip(own.ok_or(SocketError::NetworkUnreachable)?.0);
        }
        let core::net::IpAddr::V4(address) = remote.ip() else { return Err(SocketError::NetworkUnreachable) };
        if self.is_broadcast(address) || address.is_multicast() {
            return Err(SocketError::NetworkUnreachable);
        }
        let (_, _, source) = self.route_to(local.ip(), remote.ip())?;
        let mut tuple = FourTuple { local: SocketAddr::new(source, local.port()), remote };
        if local.port() == 0 {
            let port = self.pick_port(now, tuple).ok_or(SocketError::AddressNotAvailable)?;
            tuple.local.set_port(port);
        } else if !self.is_available(now, &tuple) {
            return Err(SocketError::AddressNotAvailable);
        }
        Ok(tuple)
    }

    fn start_connection(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        buffers: B::Stream,
        options: &SocketOptions,
    ) -> Result<TcpSocket<B>, SocketError> {
        let (link_mtu, path_mtu) = self.mtus_to(now, tuple.local.ip(), tuple.remote.ip())?;
        let mut config = self.tcp_config(link_mtu, path_mtu, options);
        config.remembered = self.remembered(now, tuple.remote.ip());
        let isn = self.isn.isn(now, tuple.local, tuple.remote);
        let isn = self.succeed_time_wait(now, &tuple).map_or(isn, |at_least| isn.later(at_least));
        let offset = self.isn.timestamp_offset(tuple.local, tuple.remote);
        let mut connection = tcp::Connection::connect(now, &config, tuple.local, tuple.remote, isn, offset);
        if options.fast_open_connect {
            self.begin_fast_open(now, &tuple, &mut connection);
        }
        self.stats.tcp_active_opens += 1;
        let mut socket = TcpSocket::new(now, connection, buffers, Stage::Owned);
        socket.parent = NIL;
        Ok(socket)
    }
}

pub(crate) fn manner_of(options: &SocketOptions, listening: bool) -> Manner {
    Manner {
        reuse_address: options.reuse_address,
        reuse_port: options.reuse_port,
        listening,
        explicit: false,
    }
}
