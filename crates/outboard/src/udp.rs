//! A UDP socket in the manner of `std::net::UdpSocket`.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::Endpoint;
use crate::options::{Blocking, each_address};
use crate::raw::{self, Interest, SocketOption};

/// A UDP socket.
#[derive(Clone)]
pub struct UdpSocket {
    shared: Arc<Shared>,
}

struct Shared {
    socket: raw::Socket,
    blocking: Blocking,
}

impl UdpSocket {
    /// A socket bound to `address`, or to the first of several that can be had.
    pub fn bind(endpoint: &Endpoint, address: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(address, |address| {
            let socket = raw::Socket::udp(endpoint)?;
            socket.bind(address)?;
            Ok(Self { shared: Arc::new(Shared { socket, blocking: Blocking::default() }) })
        })
    }

    /// The non-blocking socket underneath.
    pub fn raw(&self) -> &raw::Socket {
        &self.shared.socket
    }

    /// Talk to this peer only: `send` goes there, other senders' datagrams are not received.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        each_address(address, |address| self.raw().connect(address))
    }

    /// Receives one datagram; what does not fit into `buffer` is lost.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buffer, false)
    }

    /// Receives one datagram and leaves it in place.
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buffer, true)
    }

    /// Receives one datagram; what does not fit into `buffer` is lost.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, false).map(|(count, _)| count)
    }

    /// Receives one datagram and leaves it in place.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer, true).map(|(count, _)| count)
    }

    /// Sends one datagram to the first address of `address`.
    pub fn send_to(&self, bytes: &[u8], address: impl ToSocketAddrs) -> io::Result<usize> {
        match address.to_socket_addrs()?.next() {
            Some(address) => self.transmit(bytes, Some(address)),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")),
        }
    }

    /// Sends one datagram to the connected peer.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.transmit(bytes, None)
    }

    /// The address of this socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.raw().local_addr()
    }

    /// The address of the connected peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.raw().peer_addr()
    }

    /// Another handle of the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Whether calls that cannot go on fail with `ErrorKind::WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.blocking.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a receive may take; `None` for as long as it wants.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.blocking.set_read_timeout(timeout)
    }

    /// How long a send may take to be accepted; `None` for as long as it wants.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.blocking.set_write_timeout(timeout)
    }

    /// The read timeout.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.blocking.read_timeout())
    }

    /// The write timeout.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.blocking.write_timeout())
    }

    /// The time to live of the packets that this socket sends.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.raw().set_option(SocketOption::Ttl(ttl))
    }

    /// The time to live of the packets that this socket sends.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.raw().options().ttl)
    }

    /// The error that came up since last asked, if any; asking clears it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.raw().take_error()
    }

    fn receive(&self, buffer: &mut [u8], peek: bool) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.raw().recv_from(&mut [IoSliceMut::new(buffer)], peek) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.blocking.wait(self.raw(), Interest::READABLE)?;
                }
                other => return other.map(|datagram| (datagram.copied, datagram.remote)),
            }
        }
    }

    fn transmit(&self, bytes: &[u8], remote: Option<SocketAddr>) -> io::Result<usize> {
        loop {
            match self.raw().send_to(&[IoSlice::new(bytes)], remote) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.blocking.wait(self.raw(), Interest::WRITABLE)?;
                }
                other => return other,
            }
        }
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UdpSocket");
        if let Ok(address) = self.local_addr() {
            debug.field("local", &address);
        }
        debug.finish()
    }
}
