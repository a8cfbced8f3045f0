//! A TCP listener in the manner of `std::net::TcpListener`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::options::{Blocking, each_address};
use crate::raw::{self, Interest, SocketOption};
use crate::{CongestionAlgorithm, Endpoint, TcpStream};

/// How many connections may wait to be accepted, as in `std`.
const BACKLOG: u32 = 128;

/// A socket that takes connections.
#[derive(Clone)]
pub struct TcpListener {
    shared: Arc<Shared>,
}

struct Shared {
    socket: raw::Socket,
    blocking: Blocking,
}

impl TcpListener {
    /// Listens on `address`, or on the first of several that can be had. Port 0 picks a free one, and the
    /// unspecified address stands for all addresses of the endpoint.
    pub fn bind(endpoint: &Endpoint, address: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(address, |address| {
            let socket = raw::Socket::tcp(endpoint)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)?;
            Ok(Self { shared: Arc::new(Shared { socket, blocking: Blocking::default() }) })
        })
    }

    /// The non-blocking socket underneath.
    pub fn raw(&self) -> &raw::Socket {
        &self.shared.socket
    }

    /// The congestion control of the connections accepted from now on.
    pub fn set_congestion_control(&self, algorithm: CongestionAlgorithm) -> io::Result<()> {
        self.raw().set_option(SocketOption::Congestion(algorithm))
    }

    /// The next connection and the address of its peer.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            match self.raw().accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.blocking.wait(self.raw(), Interest::READABLE)?;
                }
                other => return other.map(|(socket, peer)| (TcpStream::from_raw(socket), peer)),
            }
        }
    }

    /// Lets connections begin with data in the SYN (TCP Fast Open, RFC 7413), at most `pending` of which the handshake is not
    /// over; 0: none. A client's duplicate SYN can then be taken for another connection: only for servers that bear it.
    pub fn set_fast_open(&self, pending: u32) -> io::Result<()> {
        self.raw().set_option(SocketOption::FastOpen(pending))
    }

    /// Connections are there to be accepted only with their first data, or after so long; zero: at once.
    pub fn set_deferred_accept(&self, limit: Duration) -> io::Result<()> {
        self.raw().set_option(SocketOption::DeferAccept(limit))
    }

    /// The connections as they come, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address that this socket listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.raw().local_addr()
    }

    /// Another handle of the same listener.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Whether `accept` fails with `ErrorKind::WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.blocking.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The error that came up since last asked, if any; asking clears it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.raw().take_error()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpListener");
        if let Ok(address) = self.local_addr() {
            debug.field("local", &address);
        }
        debug.finish()
    }
}

/// The connections of a listener as they come. Never ends.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}
