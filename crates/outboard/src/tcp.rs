//! A TCP connection in the manner of `std::net::TcpStream`.

use std::fmt;
use std::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::options::{Blocking, each_address};
use crate::raw::{self, Interest, SocketOption};
use crate::{CongestionAlgorithm, Endpoint, TcpInfo};

/// A TCP connection. Dropping the last clone closes it: what is queued is still delivered.
#[derive(Clone)]
pub struct TcpStream {
    shared: Arc<Shared>,
}

struct Shared {
    socket: raw::Socket,
    blocking: Blocking,
}

impl TcpStream {
    /// Connects to `address`, or to the first of several addresses that answers.
    pub fn connect(endpoint: &Endpoint, address: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(address, |address| Self::connect_until(endpoint, &address, None))
    }

    /// Connects to `address`, giving up after `timeout` with `ErrorKind::TimedOut`.
    pub fn connect_timeout(endpoint: &Endpoint, address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero"));
        }
        Self::connect_until(endpoint, address, Some(Instant::now() + timeout))
    }

    /// Connects by TCP Fast Open (RFC 7413) and sends `first`: in the SYN, if the peer gave a cookie on an earlier connection,
    /// else once connected. Only for what may reach the application twice: a duplicate of such a SYN can be taken for
    /// another connection.
    pub fn connect_with(endpoint: &Endpoint, address: &SocketAddr, first: &[u8]) -> io::Result<Self> {
        let socket = raw::Socket::tcp(endpoint)?;
        socket.set_option(SocketOption::FastOpenConnect(true))?;
        let mut sent = 0;
        match socket.connect(*address) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            other => {
                other?;
                // What does not fit in the SYN follows the handshake.
                sent = socket.send(&[IoSlice::new(first)])?;
            }
        }
        socket.wait(Interest::WRITABLE, None)?;
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        let stream = Self::from_raw(socket);
        (&stream).write_all(&first[sent..])?;
        Ok(stream)
    }

    fn connect_until(
        endpoint: &Endpoint,
        address: &SocketAddr,
        deadline: Option<Instant>,
    ) -> io::Result<Self> {
        let socket = raw::Socket::tcp(endpoint)?;
        match socket.connect(*address) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            other => other?,
        }
        let ready = socket.wait(Interest::WRITABLE, deadline)?;
        if !ready.satisfies(Interest::WRITABLE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(Self::from_raw(socket)),
        }
    }

    pub(crate) fn from_raw(socket: raw::Socket) -> Self {
        Self { shared: Arc::new(Shared { socket, blocking: Blocking::default() }) }
    }

    /// The non-blocking socket underneath.
    pub fn raw(&self) -> &raw::Socket {
        &self.shared.socket
    }

    /// Another handle of the same connection: same position, same options.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// The address of the peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.raw().peer_addr()
    }

    /// The address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.raw().local_addr()
    }

    /// Ends one direction or both. What is queued to send is still delivered before the end.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.raw().shutdown(how)
    }

    /// Reads without removing what is read.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(buffer)], true)
    }

    /// The error that came up since last asked, if any; asking clears it.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.raw().take_error()
    }

    /// How long a read may take; `None` for as long as it wants. Zero is an error, as in `std`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.blocking.set_read_timeout(timeout)
    }

    /// How long a write may take to be accepted; `None` for as long as it wants. Zero is an error, as in `std`.
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

    /// Whether calls that cannot go on fail with `ErrorKind::WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.blocking.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Whether small segments go out at once (Nagle's algorithm off).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.raw().set_option(SocketOption::NoDelay(nodelay))
    }

    /// Whether Nagle's algorithm is off.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.raw().options().nodelay)
    }

    /// Another congestion control; it goes on from the present window.
    pub fn set_congestion_control(&self, algorithm: CongestionAlgorithm) -> io::Result<()> {
        self.raw().set_option(SocketOption::Congestion(algorithm))
    }

    /// The congestion control.
    pub fn congestion_control(&self) -> io::Result<CongestionAlgorithm> {
        self.raw().congestion_control()
    }

    /// The connection in numbers (`TCP_INFO`), and how long each reason limited it. Asks the stack.
    pub fn info(&self) -> io::Result<TcpInfo> {
        self.raw().info()
    }

    /// The time to live of the packets that this socket sends.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.raw().set_option(SocketOption::Ttl(ttl))
    }

    /// The time to live of the packets that this socket sends.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.raw().options().ttl)
    }

    /// Sends `byte` as urgent data (`MSG_OOB`), behind what is queued.
    ///
    /// New applications should not use it (RFC 6093 §5): middle boxes clear the pointer, one mark overwrites the one before, and
    /// no two systems agree in every detail. It is there for protocols that have it (telnet, rlogin, FTP's abort).
    pub fn send_urgent(&self, byte: u8) -> io::Result<()> {
        loop {
            match self.raw().send_in(&[IoSlice::new(&[byte])], raw::Manner::Urgent) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                other => return other.map(|_| ()),
            }
        }
    }

    /// The peer's last urgent byte, out of the line and at once. `None`: there is none, or it was received or passed before,
    /// or it has not come yet although it is announced.
    pub fn recv_urgent(&self) -> io::Result<Option<u8>> {
        match self.raw().recv_urgent(false) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EAGAIN)) => Ok(None),
            other => other,
        }
    }

    /// Whether the next byte is the peer's urgent one. A read never goes beyond the mark at once.
    pub fn is_at_mark(&self) -> bool {
        self.raw().is_at_mark()
    }

    /// Whether urgent bytes are read in the line, like all others (`SO_OOBINLINE`), as RFC 6093 §6 recommends. By default reads
    /// pass over them.
    pub fn set_urgent_inline(&self, inline: bool) -> io::Result<()> {
        self.raw().set_option(SocketOption::UrgentInline(inline))
    }

    /// A reader is woken only when so many bytes are there (or the stream ends). 1 is the default. A low-water mark
    /// that the peer never reaches makes a reader wait for ever; it is for bulk data of known length.
    pub fn set_receive_low_water(&self, bytes: u32) -> io::Result<()> {
        self.raw().set_option(SocketOption::ReceiveLowWater(bytes))
    }

    /// The receiving side, to read in place. While it lives, other readers of this connection wait.
    pub fn reader(&self) -> Reader<'_> {
        Reader { stream: self, side: self.raw().receiver() }
    }

    /// The sending side, to produce in place. While it lives, other writers of this connection wait.
    pub fn writer(&self) -> Writer<'_> {
        Writer { stream: self, side: self.raw().sender() }
    }

    fn receive(&self, buffers: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        loop {
            match self.raw().recv(buffers, peek) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_readable()?,
                other => return other,
            }
        }
    }

    fn transmit(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.raw().send(buffers) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                other => return other,
            }
        }
    }

    fn wait_readable(&self) -> io::Result<()> {
        self.shared.blocking.wait(self.raw(), Interest::READABLE)
    }

    fn wait_writable(&self) -> io::Result<()> {
        self.shared.blocking.wait(self.raw(), Interest::WRITABLE)
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpStream");
        if let Ok(address) = self.local_addr() {
            debug.field("local", &address);
        }
        if let Ok(address) = self.peer_addr() {
            debug.field("peer", &address);
        }
        debug.finish()
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(&mut [IoSliceMut::new(buffer)], false)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.receive(buffers, false)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transmit(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.transmit(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The receiving side of a connection, read in place: `fill_buf` gives the received bytes where the stack put them,
/// `consume` gives the space back.
pub struct Reader<'a> {
    stream: &'a TcpStream,
    side: raw::Receiver<'a>,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.side.recv(&mut [IoSliceMut::new(buffer)], false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.wait_readable()?,
                other => return other,
            }
        }
    }
}

impl BufRead for Reader<'_> {
    /// The received bytes that lie in one piece, at least one; empty at the end of the stream.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while !self.side.is_ready() {
            self.stream.wait_readable()?;
        }
        self.side.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.side.consume(count);
    }
}

/// The sending side of a connection, filled in place: `reserve` gives space in the send ring, `commit` sends what
/// was produced there.
pub struct Writer<'a> {
    stream: &'a TcpStream,
    side: raw::Sender<'a>,
}

impl Writer<'_> {
    /// Space to produce into, in one piece: at least one byte, at most `wanted`. Waits until there is some.
    pub fn reserve(&mut self, wanted: usize) -> io::Result<&mut [u8]> {
        loop {
            match self.side.prepare(wanted) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.wait_writable()?,
                other => break other?,
            }
        }
        Ok(self.side.space(wanted))
    }

    /// Sends the first `count` bytes of the space that [`reserve`](Self::reserve) gave last.
    ///
    /// # Panics
    /// If `count` is more than was reserved.
    pub fn commit(&mut self, count: usize) -> io::Result<()> {
        self.side.commit(count)
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.side.send(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.wait_writable()?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
