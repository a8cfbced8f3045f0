//! sendfile. A file's bytes are read straight into the send ring: one copy.

use std::ffi::{c_int, c_void};
use std::io;

use libc::{off_t, size_t, ssize_t};
use outboard::raw::{Interest, Socket};

use crate::calls::carried;
use crate::description::{InetSocket, Kind};
use crate::transfer::with_sigpipe;
use crate::{errno, real, table, wait};

/// The most that one call sends, as in the kernel (`MAX_RW_COUNT`).
const MOST: usize = 0x7fff_f000;
/// Asked of the ring at once.
const PIECE: usize = 256 * 1024;

/// See sendfile(2).
///
/// # Safety
/// `offset` must be null or point to an offset.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    let held = table::find(to);
    let Some((socket, outboard)) = carried(held.as_ref()).filter(|(socket, _)| socket.kind == Kind::Stream)
    else {
        if carried(table::find(from).as_ref()).is_some() {
            return errno::fail(libc::EINVAL) as ssize_t; // the source must be something like a file
        }
        // SAFETY: the caller's pointer.
        return unsafe { real::sendfile(to, from, offset, count) };
    };
    // SAFETY: the caller's pointer.
    let offset = unsafe { offset.as_mut() };
    let source = Source { fd: from, position: offset.as_deref().copied() };
    errno::count(with_sigpipe(0, send_file(socket, outboard, source, count.min(MOST), offset)))
}

/// See sendfile(2).
///
/// # Safety
/// As [`sendfile`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's pointer; offsets have 64 bits on this system.
    unsafe { sendfile(to, from, offset, count) }
}

/// Where the bytes come from: a position that the caller keeps, or the file's own.
struct Source {
    fd: c_int,
    position: Option<off_t>,
}

impl Source {
    /// Reads into `space`; 0 at the end of the file.
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let (buffer, length) = (space.as_mut_ptr().cast::<c_void>(), space.len());
        // SAFETY: the space is writable and as long as said.
        let count = unsafe {
            match self.position {
                Some(position) => libc::pread64(self.fd, buffer, length, position),
                None => real::read(self.fd, buffer, length),
            }
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        if let Some(position) = &mut self.position {
            *position += count as off_t;
        }
        Ok(count)
    }
}

fn send_file(
    socket: &InetSocket,
    outboard: &Socket,
    mut source: Source,
    count: usize,
    offset: Option<&mut off_t>,
) -> io::Result<usize> {
    let deadline = socket.send_deadline();
    let mut done = 0;
    let outcome = loop {
        if done == count {
            break Ok(());
        }
        match one_piece(outboard, &mut source, (count - done).min(PIECE)) {
            Ok(0) => break Ok(()),
            Ok(sent) => done += sent,
            Err(error) if errno::is_again(&error) && !socket.nonblocking() => {
                if let Err(error) = wait::for_socket(outboard, Interest::WRITABLE, deadline) {
                    break Err(error);
                }
            }
            Err(error) => break Err(error),
        }
    };
    if let (Some(offset), Some(position)) = (offset, source.position) {
        *offset = position;
    }
    match outcome {
        Err(error) if done == 0 => Err(error),
        _ => Ok(done),
    }
}

fn one_piece(outboard: &Socket, source: &mut Source, wanted: usize) -> io::Result<usize> {
    let mut sender = outboard.sender();
    sender.prepare(wanted)?;
    let sent = source.read(sender.space(wanted))?;
    if sent > 0 {
        sender.commit(sent)?;
    }
    Ok(sent)
}
