//! One datagram from several sends: `MSG_MORE` and `UDP_CORK` (udp(7)).

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use outboard::raw::{DatagramOptions, Socket};

use crate::description::InetSocket;
use crate::errno;

/// The longest payload of a datagram.
const LONGEST: usize = 65_507;

/// What has been gathered so far, and for whom.
#[derive(Default)]
pub(crate) struct Gathering {
    /// `UDP_CORK` is set.
    pub(crate) corked: bool,
    datagram: Option<(Vec<u8>, Option<SocketAddr>, DatagramOptions)>,
}

/// What became of a send.
pub(crate) enum Gathered {
    /// So many bytes wait for more.
    Kept(usize),
    /// These bytes, the last `count` of which are this send's, are to be sent.
    Whole {
        /// Of this send.
        count: usize,
        /// All of them.
        bytes: Vec<u8>,
        /// Where to.
        remote: Option<SocketAddr>,
        /// With what the first of them was sent.
        options: DatagramOptions,
    },
}

/// Adds a send to what has been gathered. `None`: it is a datagram of its own. The first send says where to.
///
/// # Errors
/// `EMSGSIZE`: it is too much; what was gathered before is lost, as on Linux. `EDESTADDRREQ`: nobody said where to.
/// `EPIPE`: the program has shut the socket.
pub(crate) fn add(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
    options: DatagramOptions,
) -> io::Result<Option<Gathered>> {
    let more = flags & libc::MSG_MORE != 0;
    if !more && !socket.gathers() {
        return Ok(None);
    }
    let mut gathering = socket.gathering();
    if remote.is_none() && gathering.datagram.is_none() && outboard.peer_addr().is_err() {
        return Err(errno::error(libc::EDESTADDRREQ));
    }
    if outboard.is_write_shut() {
        return Err(errno::error(libc::EPIPE));
    }
    let corked = gathering.corked;
    let before = gathering.datagram.take();
    let (mut bytes, remote, options) = before.unwrap_or((Vec::new(), remote, options));
    let count = buffers.iter().map(|buffer| buffer.len()).sum::<usize>();
    if count > LONGEST - bytes.len() {
        return Err(errno::error(libc::EMSGSIZE));
    }
    buffers.iter().for_each(|buffer| bytes.extend_from_slice(buffer));
    if more || corked {
        gathering.datagram = Some((bytes, remote, options));
        socket.set_gathers(true);
        return Ok(Some(Gathered::Kept(count)));
    }
    socket.set_gathers(false);
    Ok(Some(Gathered::Whole { count, bytes, remote, options }))
}

/// What has been gathered, which nothing is added to any more.
pub(crate) fn take(socket: &InetSocket) -> Option<(Vec<u8>, Option<SocketAddr>, DatagramOptions)> {
    let mut gathering = socket.gathering();
    gathering.corked = false;
    socket.set_gathers(false);
    gathering.datagram.take()
}
