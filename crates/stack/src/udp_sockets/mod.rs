//! UDP: binding, connecting, closing; datagrams in and out are in `input` and `output`.

mod input;
mod output;

use core::net::{IpAddr, SocketAddr};

use crate::buffers::{BufferFamily, DatagramBuffer};
use crate::config::SocketOptions;
use crate::error::SocketError;
use crate::flow::{FourTuple, Target};
use crate::ports::{Claim, Manner};
use crate::socket::{Kind, Socket, UdpSocket};
use crate::stack::{SocketId, Stack, canonical};

impl<B: BufferFamily> Stack<B> {
    /// Makes a UDP socket at an address (unspecified: all of ours) and a port (0: an ephemeral one).
    ///
    /// # Errors
    /// `AddressNotAvailable`, `AddressInUse`, `TooManySockets`, `FamilyNotSupported`.
    pub fn udp_bind(
        &mut self,
        local: SocketAddr,
        buffers: B::Datagrams,
        options: &SocketOptions,
    ) -> Result<SocketId, SocketError> {
        if !self.has_socket_room() {
            return Err(SocketError::TooManySockets);
        }
        let local = canonical(local, options.v6_only)?;
        let ours = match local.ip() {
            IpAddr::V4(address) => {
                address.is_unspecified() || self.is_local(local.ip()) || self.is_broadcast(address)
            }
            IpAddr::V6(_) => false,
        };
        if !ours {
            return Err(SocketError::AddressNotAvailable);
        }
        let manner = Manner {
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
            listening: false,
            explicit: true,
        };
        let mut claim = Claim { local, manner };
        if local.port() == 0 {
            let random = self.rng.next_u64();
            let port = self.udp_ports.pick_for_bind(claim, random).ok_or(SocketError::AddressInUse)?;
            claim.local.set_port(port);
        } else if !self.udp_ports.is_free(&claim) {
            return Err(SocketError::AddressInUse);
        }
        self.udp_ports.hold(&claim);
        let udp = UdpSocket {
            bound: claim.local,
            connected: None,
            buffers,
            path: None,
            error: None,
            broadcast: options.broadcast,
            receives_runs: options.receive_runs,
            sent_of_run: 0,
        };
        let socket = Socket::new(Kind::Udp(Box::new(udp)), Some(manner), options, self.config.ttl);
        let key = self.sockets.insert(socket);
        self.udp_endpoints.insert(claim.local, key.index);
        Ok(key.into())
    }

    /// Connects a UDP socket: it sends there unless told otherwise, and receives from there only. `None` undoes it.
    ///
    /// # Errors
    /// `NetworkUnreachable`, `FamilyNotSupported`, `NotSupported` by other kinds of sockets; `PermissionDenied`: to all,
    /// without being allowed to.
    pub fn udp_connect(&mut self, id: SocketId, remote: Option<SocketAddr>) -> Result<(), SocketError> {
        let socket = self.owned_mut(id)?;
        let Kind::Udp(udp) = &socket.kind else { return Err(SocketError::NotSupported) };
        let (bound, broadcast) = (udp.bound, udp.broadcast);
        let tuple = match remote {
            None => None,
            Some(remote) => {
                let remote = canonical(remote, true).map_err(|_| SocketError::NetworkUnreachable)?;
                let to_all = matches!(remote.ip(), IpAddr::V4(address) if self.is_broadcast(address));
                if to_all && !broadcast {
                    return Err(SocketError::PermissionDenied);
                }
                let (_, _, source) = self.route_to(bound.ip(), remote.ip())?;
                Some(FourTuple { local: SocketAddr::new(source, bound.port()), remote })
            }
        };
        self.leave_udp_tables(id.index);
        let Some(udp) = self.sockets.get_mut(id.into()).and_then(|socket| socket.udp_mut()) else {
            return Err(SocketError::NoSuchSocket);
        };
        udp.connected = tuple;
        udp.path = None;
        match tuple {
            Some(tuple) => self.udp_flows.insert(&tuple, Target::Socket(id.index)),
            None => self.udp_endpoints.insert(bound, id.index),
        }
        Ok(())
    }

    /// The socket's buffers hold datagrams to send.
    ///
    /// # Errors
    /// `NoSuchSocket`, `NotSupported` by other kinds of sockets.
    pub fn udp_send(&mut self, id: SocketId) -> Result<(), SocketError> {
        match self.owned_mut(id)?.kind {
            Kind::Udp(_) => self.schedule(id.index),
            Kind::Bound(_) | Kind::Listener(_) | Kind::Tcp(_) | Kind::Released => {
                return Err(SocketError::NotSupported);
            }
        }
        Ok(())
    }

    /// The buffers of a UDP socket.
    pub fn datagrams(&mut self, id: SocketId) -> Option<&mut B::Datagrams> {
        self.sockets.get_mut(id.into())?.udp_mut().map(|udp| &mut udp.buffers)
    }

    /// Takes the pending error of a UDP socket.
    pub fn take_error(&mut self, id: SocketId) -> Option<SocketError> {
        self.sockets.get_mut(id.into())?.udp_mut()?.error.take()
    }

    /// The connected socket of a flow.
    pub(crate) fn find_udp_connected(&mut self, tuple: &FourTuple) -> Option<u32> {
        let sockets = &self.sockets;
        let found = self.udp_flows.find(tuple, |target| match target {
            Target::Socket(index) => matches!(
                sockets.get_index(index).map(|socket| &socket.kind),
                Some(Kind::Udp(udp)) if udp.connected == Some(*tuple)
            ),
            Target::TimeWait(_) => false,
        });
        match found {
            Some(Target::Socket(index)) => Some(index),
            Some(Target::TimeWait(_)) | None => None,
        }
    }

    /// Whether some socket sends from this end.
    pub(crate) fn has_udp_at(&self, local: SocketAddr) -> bool {
        self.udp_ports.is_held(local.port())
    }

    pub(crate) fn set_udp_error(&mut self, index: u32, error: SocketError) {
        if let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) {
            udp.error = Some(error);
            self.mark_changed(index);
        }
    }

    /// The owner lets go: what is queued is still sent.
    pub(crate) fn close_udp(&mut self, index: u32) {
        self.leave_udp_tables(index);
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let Kind::Udp(udp) = &mut socket.kind else { return };
        if udp.buffers.front().is_none() {
            self.release(index);
        } else {
            socket.orphan = true;
            self.schedule(index);
        }
    }

    fn leave_udp_tables(&mut self, index: u32) {
        let Some(udp) = self.sockets.get_index_mut(index).and_then(|socket| socket.udp_mut()) else { return };
        let bound = udp.bound;
        match udp.connected {
            Some(tuple) => self.udp_flows.remove(&tuple, Target::Socket(index)),
            None => self.udp_endpoints.remove(bound, index),
        }
    }
}
