//! One connection on either kind of socket, with the calls that the measurements need.

use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;

use outboard::Endpoint;

use super::CHUNK;

/// Whose sockets to use.
pub enum Net {
    /// The kernel's.
    Kernel,
    /// The library's.
    Outboard(Endpoint),
}

/// A listening socket of either kind.
pub enum Listener {
    /// The kernel's.
    Kernel(std::net::TcpListener),
    /// The library's.
    Outboard(outboard::TcpListener),
}

/// A connection of either kind. The kernel's has a buffer to read into and write from.
pub(crate) enum Connection {
    Kernel(std::net::TcpStream, Vec<u8>),
    Outboard(outboard::TcpStream),
}

impl Net {
    /// The sockets that the subject's name and the environment ask for.
    pub fn named(name: &str) -> io::Result<Self> {
        match name {
            "kernel" => Ok(Self::Kernel),
            _ => Endpoint::from_env().map(Self::Outboard),
        }
    }

    /// Listens.
    pub fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        match self {
            Self::Kernel => std::net::TcpListener::bind(address).map(Listener::Kernel),
            Self::Outboard(endpoint) => {
                outboard::TcpListener::bind(endpoint, address).map(Listener::Outboard)
            }
        }
    }
}

impl Listener {
    /// Takes the next connection.
    pub(crate) fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Kernel(listener) => listener.accept().map(|(stream, _)| Connection::kernel(stream)),
            Self::Outboard(listener) => listener.accept().map(|(stream, _)| Connection::Outboard(stream)),
        }
    }
}

impl Connection {
    pub(crate) fn kernel(stream: std::net::TcpStream) -> Self {
        Self::Kernel(stream, Vec::new())
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream, _) => stream.set_nodelay(true),
            Self::Outboard(stream) => stream.set_nodelay(true),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(stream, _) => stream.read(buffer),
            Self::Outboard(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Kernel(stream, _) => stream.read_exact(buffer),
            Self::Outboard(stream) => stream.read_exact(buffer),
        }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Kernel(stream, _) => stream.write_all(bytes),
            Self::Outboard(stream) => stream.write_all(bytes),
        }
    }

    /// Receives `total` bytes, giving each piece to `take` as it comes: in the receive ring on the library, in a buffer
    /// on the kernel.
    pub(crate) fn receive(&mut self, total: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut left = total;
        match self {
            Self::Kernel(stream, buffer) => {
                buffer.resize(CHUNK, 0);
                while left > 0 {
                    let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let count = stream.read(&mut buffer[..room])?;
                    if count == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    take(&buffer[..count]);
                    left -= count as u64;
                }
            }
            Self::Outboard(stream) => {
                let mut reader = stream.reader();
                while left > 0 {
                    let bytes = reader.fill_buf()?;
                    let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if count == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    take(&bytes[..count]);
                    reader.consume(count);
                    left -= count as u64;
                }
            }
        }
        Ok(())
    }

    /// Sends `total` bytes, letting `make` produce each piece: in the send ring on the library, in a buffer on the
    /// kernel.
    pub(crate) fn send(&mut self, total: u64, mut make: impl FnMut(&mut [u8])) -> io::Result<()> {
        let mut left = total;
        match self {
            Self::Kernel(stream, buffer) => {
                buffer.resize(CHUNK, 0);
                while left > 0 {
                    let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    make(&mut buffer[..count]);
                    stream.write_all(&buffer[..count])?;
                    left -= count as u64;
                }
            }
            Self::Outboard(stream) => {
                let mut writer = stream.writer();
                while left > 0 {
                    let wanted = CHUNK.min(usize::try_from(left).unwrap_or(usize::MAX));
                    let space = writer.reserve(wanted)?;
                    let count = space.len().min(wanted);
                    make(&mut space[..count]);
                    writer.commit(count)?;
                    left -= count as u64;
                }
            }
        }
        Ok(())
    }
}
