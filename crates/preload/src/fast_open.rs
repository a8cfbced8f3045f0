//! TCP Fast Open as Linux answers it: `MSG_FASTOPEN`, which connects and sends at once, and the first send of a connection
//! that `TCP_FASTOPEN_CONNECT` has put off.

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

use outboard::raw::{Socket, SocketOption};

use crate::connection::{prepare_connect, wait_connected};
use crate::description::{InetSocket, Kind};
use crate::runtime::for_stack;
use crate::table::Held;
use crate::{errno, transfer};

/// Whether a send is one that connects: `MSG_FASTOPEN` on a stream socket.
pub(crate) fn is_wanted(held: &Held, flags: c_int) -> bool {
    flags & libc::MSG_FASTOPEN != 0 && held.socket().is_some_and(|socket| socket.kind == Kind::Stream)
}

/// Connects and sends. `None`: the kernel carries it.
pub(crate) fn connect_and_send(
    fd: c_int,
    held: &Held,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
) -> Option<io::Result<usize>> {
    let socket = held.socket()?;
    let Some(remote) = remote else {
        let has_begun = socket.outboard()?.has_begun();
        return Some(Err(errno::error(if has_begun { libc::EISCONN } else { libc::EINVAL })));
    };
    match prepare_connect(fd, held, socket, remote) {
        Ok(Some(outboard)) => Some(begin(socket, outboard, buffers, remote, flags)),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    }
}

fn begin(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: SocketAddr,
    flags: c_int,
) -> io::Result<usize> {
    if !outboard.has_begun() && !outboard.options().fast_open_connect {
        outboard.set_option(SocketOption::FastOpenConnect(true))?;
    }
    match outboard.connect(for_stack(remote)) {
        // Without a cookie the SYN asks for one, and the data waits for the handshake.
        Err(error) if is_in_progress(&error) && !socket.may_not_wait(flags) => {
            wait_connected(outboard, socket.send_deadline())?;
            if let Some(error) = outboard.take_error()? {
                return Err(error);
            }
            outboard.note_connected();
        }
        other => other?,
    }
    transfer::send(socket, outboard, buffers, None, flags)
}

/// What a first send that may not wait takes: as Linux, what goes with the SYN.
pub(crate) fn first_part<'a>(outboard: &Socket, buffers: &'a [IoSlice<'_>]) -> Vec<IoSlice<'a>> {
    let mut room = outboard.segment_size().map_or(usize::MAX, |size| size as usize);
    let mut part = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let count = buffer.len().min(room);
        part.push(IoSlice::new(&buffer[..count]));
        room -= count;
    }
    part
}

/// A send that began the connection waits for its outcome, if it may wait: Linux does.
pub(crate) fn outcome(socket: &InetSocket, outboard: &Socket, sent: usize) -> io::Result<usize> {
    match wait_connected(outboard, socket.send_deadline()) {
        Err(error) if is_in_progress(&error) => return Ok(sent),
        other => other?,
    }
    match outboard.take_error()? {
        Some(error) => Err(error),
        None => {
            outboard.note_connected();
            Ok(sent)
        }
    }
}

fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}
