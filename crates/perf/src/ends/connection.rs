//! Sockets of either kind, with the calls that the measurements need.

use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, UdpSocket};
use std::time::Duration;

use outboard::Endpoint;
use outboard::raw::SocketOption;
use socket2::{Domain, SockRef, Socket, Type};

use super::Plan;

/// Whose sockets to use.
#[derive(Clone)]
pub enum Net {
    /// The kernel's.
    Kernel,
    /// The library's.
    Outboard(Endpoint),
}

/// A listening socket of either kind.
pub(super) enum Listener {
    Kernel(std::net::TcpListener),
    Outboard(outboard::TcpListener),
}

/// A connection of either kind.
pub(super) enum Connection {
    Kernel(std::net::TcpStream),
    Outboard(outboard::TcpStream),
}

/// A UDP socket of either kind.
pub(super) enum Datagrams {
    Kernel(UdpSocket),
    Outboard(outboard::UdpSocket),
}

impl Net {
    /// The sockets that the subject's name and the environment ask for.
    pub fn named(name: &str) -> io::Result<Self> {
        match name {
            "kernel" => Ok(Self::Kernel),
            _ => Endpoint::from_env().map(Self::Outboard),
        }
    }

    /// What the outcome calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Outboard(endpoint) if endpoint.is_host() => "host",
            Self::Outboard(_) => "fep",
        }
    }

    pub(super) fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        match self {
            Self::Kernel => std::net::TcpListener::bind(address).map(Listener::Kernel),
            Self::Outboard(endpoint) => {
                outboard::TcpListener::bind(endpoint, address).map(Listener::Outboard)
            }
        }
    }

    pub(super) fn connect(&self, address: SocketAddr) -> io::Result<Connection> {
        match self {
            Self::Kernel => std::net::TcpStream::connect(address).map(Connection::Kernel),
            Self::Outboard(endpoint) => {
                outboard::TcpStream::connect(endpoint, address).map(Connection::Outboard)
            }
        }
    }

    /// Connects with the options of a plan, those in force from the first segment on included.
    pub(super) fn connect_as(&self, address: SocketAddr, plan: &Plan) -> io::Result<Connection> {
        if *self == Self::Kernel && (plan.socket_buffer_bytes.is_some() || plan.congestion_control.is_some())
        {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            tune_kernel(SockRef::from(&socket), plan)?;
            socket.connect(&address.into())?;
            return Ok(Connection::Kernel(socket.into()));
        }
        let connection = self.connect(address)?;
        if let Connection::Outboard(stream) = &connection {
            tune_outboard(plan, |option| stream.raw().set_option(option))?;
        }
        Ok(connection)
    }

    pub(super) fn datagrams(&self, local: SocketAddr) -> io::Result<Datagrams> {
        match self {
            Self::Kernel => UdpSocket::bind(local).map(Datagrams::Kernel),
            Self::Outboard(endpoint) => outboard::UdpSocket::bind(endpoint, local).map(Datagrams::Outboard),
        }
    }

    /// Where a listener's own host reaches it: a stack of the library has no 127.0.0.1.
    pub(super) fn reachable(&self, local: SocketAddr) -> SocketAddr {
        if !local.ip().is_unspecified() {
            return local;
        }
        let own = match self {
            Self::Kernel => None,
            Self::Outboard(endpoint) => endpoint.addresses().first().map(|own| own.address()),
        };
        let loopback = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        };
        SocketAddr::new(own.unwrap_or(loopback), local.port())
    }

    /// An address to bind to for talking to `remote`.
    pub(super) fn any_address(remote: SocketAddr) -> SocketAddr {
        match remote.ip() {
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            IpAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)),
        }
    }
}

impl PartialEq for Net {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kernel, Self::Kernel) => true,
            (Self::Outboard(one), Self::Outboard(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// By the calls of the C library: an unmodified program on a FEP makes them too.
fn tune_kernel(socket: SockRef<'_>, plan: &Plan) -> io::Result<()> {
    if let Some(bytes) = plan.socket_buffer_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(name) = plan.congestion_control.as_deref().filter(|_| plan.protocol == super::Protocol::Tcp) {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
            io::Error::other(format!("the kernel does not do congestion control `{name}`: {error}"))
        })?;
    }
    Ok(())
}

fn tune_outboard(plan: &Plan, set: impl Fn(SocketOption) -> io::Result<()>) -> io::Result<()> {
    if let Some(bytes) = plan.socket_buffer_bytes {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        set(SocketOption::SendBuffer(bytes))?;
        set(SocketOption::ReceiveBuffer(bytes))?;
    }
    Ok(())
}

impl Listener {
    /// Takes the next connection.
    pub(super) fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Kernel(listener) => listener.accept().map(|(stream, _)| Connection::Kernel(stream)),
            Self::Outboard(listener) => listener.accept().map(|(stream, _)| Connection::Outboard(stream)),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(listener) => listener.local_addr(),
            Self::Outboard(listener) => listener.local_addr(),
        }
    }

    /// Options that its connections take over: those of the plan, and no waiting for more to send.
    pub(super) fn tune(&self, plan: &Plan) -> io::Result<()> {
        match self {
            Self::Kernel(listener) => {
                SockRef::from(listener).set_tcp_nodelay(true)?;
                tune_kernel(SockRef::from(listener), plan)
            }
            Self::Outboard(listener) => {
                listener.raw().set_option(SocketOption::NoDelay(true))?;
                tune_outboard(plan, |option| listener.raw().set_option(option))
            }
        }
    }
}

impl Connection {
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nodelay(true),
            Self::Outboard(stream) => stream.set_nodelay(true),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nonblocking(true),
            Self::Outboard(stream) => stream.set_nonblocking(true),
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.shutdown(Shutdown::Write),
            Self::Outboard(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Reads until the peer has nothing more, which it should not have.
    pub(super) fn drain(&self) -> io::Result<()> {
        while (&mut &*self).read(&mut [0; 64])? > 0 {}
        Ok(())
    }

    /// Receives `total` bytes, or all that come, giving each piece to `take` as it comes: in the receive ring on the
    /// library, in the buffer on the kernel. How many came.
    pub(super) fn receive(
        &self,
        buffer: &mut Vec<u8>,
        chunk: usize,
        total: Option<u64>,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<u64> {
        let mut received = 0;
        let room = |received: u64| {
            total.map_or(chunk, |total| chunk.min(usize::try_from(total - received).unwrap_or(usize::MAX)))
        };
        let over = |received: u64| total.is_some_and(|total| received >= total);
        match self {
            Self::Kernel(stream) => {
                buffer.resize(chunk, 0);
                while !over(received) {
                    let count = (&mut &*stream).read(&mut buffer[..room(received)])?;
                    if count == 0 {
                        break;
                    }
                    take(&buffer[..count]);
                    received += count as u64;
                }
            }
            Self::Outboard(stream) => {
                let mut reader = stream.reader();
                while !over(received) {
                    let bytes = reader.fill_buf()?;
                    let count = bytes.len().min(room(received));
                    if count == 0 {
                        break;
                    }
                    take(&bytes[..count]);
                    reader.consume(count);
                    received += count as u64;
                }
            }
        }
        if total.is_some_and(|total| received < total) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(received)
    }

    /// Sends what `make` produces, in pieces of at most `chunk` bytes, until it produces nothing: in the send ring on
    /// the library, in the buffer on the kernel. How many bytes that were.
    pub(super) fn send(
        &self,
        buffer: &mut Vec<u8>,
        chunk: usize,
        mut make: impl FnMut(&mut [u8]) -> usize,
    ) -> io::Result<u64> {
        let mut sent = 0;
        match self {
            Self::Kernel(stream) => {
                buffer.resize(chunk, 0);
                loop {
                    let count = make(buffer);
                    if count == 0 {
                        return Ok(sent);
                    }
                    (&mut &*stream).write_all(&buffer[..count])?;
                    sent += count as u64;
                }
            }
            Self::Outboard(stream) => {
                let mut writer = stream.writer();
                loop {
                    let space = writer.reserve(chunk)?;
                    let most = space.len().min(chunk);
                    let count = make(&mut space[..most]);
                    if count == 0 {
                        return Ok(sent);
                    }
                    writer.commit(count)?;
                    sent += count as u64;
                }
            }
        }
    }
}

impl Read for &Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Kernel(stream) => (&mut &*stream).read(buffer),
            Connection::Outboard(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Kernel(stream) => (&mut &*stream).write(bytes),
            Connection::Outboard(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Datagrams {
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr(),
            Self::Outboard(socket) => socket.local_addr(),
        }
    }

    pub(super) fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.connect(remote),
            Self::Outboard(socket) => socket.connect(remote),
        }
    }

    /// Sets the options of a plan.
    pub(super) fn tune(&self, plan: &Plan) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => tune_kernel(SockRef::from(socket), plan),
            Self::Outboard(socket) => tune_outboard(plan, |option| socket.raw().set_option(option)),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.set_read_timeout(Some(timeout)),
            Self::Outboard(socket) => socket.set_read_timeout(Some(timeout)),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.set_nonblocking(true),
            Self::Outboard(socket) => socket.set_nonblocking(true),
        }
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.send(bytes),
            Self::Outboard(socket) => socket.send(bytes),
        }
    }

    pub(super) fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.recv(buffer),
            Self::Outboard(socket) => socket.recv(buffer),
        }
    }

    pub(super) fn send_to(&self, bytes: &[u8], remote: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.send_to(bytes, remote),
            Self::Outboard(socket) => socket.send_to(bytes, remote),
        }
    }

    pub(super) fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(socket) => socket.recv_from(buffer),
            Self::Outboard(socket) => socket.recv_from(buffer),
        }
    }
}
