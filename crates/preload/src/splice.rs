//! splice between a pipe and a stream of the stack: one copy between the ring and the pipe, which is only asked without
//! waiting, so that no lock of the socket's is held while anything waits.

use std::ffi::{c_int, c_uint, c_void};
use std::io;

use libc::{iovec, size_t, ssize_t};
use outboard::raw::{Interest, Socket};

use crate::calls::carried;
use crate::description::{InetSocket, Kind};
use crate::transfer::with_sigpipe;
use crate::{errno, real, table, wait};

/// Asked of the ring at once.
const PIECE: usize = 64 * 1024;

/// See splice(2).
///
/// # Safety
/// As splice(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    let (source, target) = (table::find(from), table::find(to));
    let (source, target) = (carried(source.as_ref()), carried(target.as_ref()));
    let (of_source, of_target) = (!from_offset.is_null(), !to_offset.is_null());
    let outcome = match (source, target) {
        (None, None) => {
            // SAFETY: the caller's pointers.
            return unsafe { real::splice(from, from_offset, to, to_offset, length, flags) };
        }
        _ if length == 0 => Ok(0),
        (Some((socket, outboard)), None) if socket.kind == Kind::Stream => {
            check(to, of_target, of_source).and_then(|()| out_of(socket, outboard, to, length, flags))
        }
        (None, Some((socket, outboard))) if socket.kind == Kind::Stream => check(from, of_source, of_target)
            .and_then(|()| with_sigpipe(0, into(socket, outboard, from, length, flags))),
        _ => Err(errno::error(libc::EINVAL)),
    };
    errno::count(outcome)
}

/// The other end must be a pipe, and neither has positions.
fn check(pipe: c_int, of_pipe: bool, of_socket: bool) -> io::Result<()> {
    // SAFETY: no pointers; a descriptor that is no pipe fails.
    let is_pipe = unsafe { libc::fcntl(pipe, libc::F_GETPIPE_SZ) } >= 0;
    match (is_pipe, of_pipe, of_socket) {
        (true, false, false) => Ok(()),
        (true, true, _) => Err(errno::error(libc::ESPIPE)),
        (false, ..) | (true, false, true) => Err(errno::error(libc::EINVAL)),
    }
}

/// From the stream into the pipe: what is there, as far as the pipe takes it.
fn out_of(
    socket: &InetSocket,
    outboard: &Socket,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> io::Result<usize> {
    let deadline = socket.receive_deadline();
    let mut done = 0;
    loop {
        // As Linux: nothing goes past the urgent byte, and where that is next, nobody waits for more.
        if outboard.is_at_mark() && outboard.left_to_read() > 0 {
            let nothing = done == 0 && socket.nonblocking();
            return if nothing { Err(errno::error(libc::EAGAIN)) } else { Ok(done) };
        }
        match move_out(outboard, pipe, (length - done).min(PIECE)) {
            Ok(Moved::Some(count)) => done += count,
            Ok(Moved::End) => return Ok(done),
            Ok(Moved::PipeWaits) | Err(_) if done > 0 => return Ok(done),
            Ok(Moved::PipeWaits) => wait_for_pipe(pipe, libc::POLLOUT, flags)?,
            Err(error) if errno::is_again(&error) && !socket.nonblocking() => {
                wait::for_socket(outboard, Interest::READABLE, deadline)?;
            }
            Err(error) => return Err(error),
        }
        if done == length {
            return Ok(done);
        }
    }
}

/// What one step did.
enum Moved {
    Some(usize),
    /// The source has ended.
    End,
    /// The pipe is full, or empty.
    PipeWaits,
}

fn move_out(outboard: &Socket, pipe: c_int, most: usize) -> io::Result<Moved> {
    let mut receiver = outboard.receiver();
    let bytes = receiver.fill_buf()?;
    let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len().min(most) };
    if part.iov_len == 0 {
        return Ok(Moved::End);
    }
    // SAFETY: the bytes are only read; -1: a pipe has no position.
    let count = unsafe { libc::pwritev2(pipe, &part, 1, -1, libc::RWF_NOWAIT) };
    let moved = judge(count)?;
    if let Moved::Some(count) = moved {
        receiver.consume(count);
    }
    Ok(moved)
}

fn judge(count: ssize_t) -> io::Result<Moved> {
    match usize::try_from(count) {
        Ok(0) => Ok(Moved::End),
        Ok(count) => Ok(Moved::Some(count)),
        Err(_) => {
            let error = io::Error::last_os_error();
            if errno::is_again(&error) { Ok(Moved::PipeWaits) } else { Err(error) }
        }
    }
}

/// From the pipe into the stream: what is there, and all of it unless the socket must not wait.
fn into(
    socket: &InetSocket,
    outboard: &Socket,
    pipe: c_int,
    length: usize,
    flags: c_uint,
) -> io::Result<usize> {
    let deadline = socket.send_deadline();
    let mut done = 0;
    while done < length {
        match move_in(outboard, pipe, (length - done).min(PIECE)) {
            Ok(Moved::Some(count)) => done += count,
            Ok(Moved::End) => break,
            Ok(Moved::PipeWaits) if done > 0 => break,
            Ok(Moved::PipeWaits) => wait_for_pipe(pipe, libc::POLLIN, flags)?,
            Err(error) if errno::is_again(&error) && !socket.nonblocking() => {
                match wait::for_socket(outboard, Interest::WRITABLE, deadline) {
                    Err(_) if done > 0 => break,
                    other => other?,
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn move_in(outboard: &Socket, pipe: c_int, most: usize) -> io::Result<Moved> {
    let mut sender = outboard.sender();
    sender.prepare(most)?;
    let space = sender.space(most);
    let part = iovec { iov_base: space.as_mut_ptr().cast::<c_void>(), iov_len: space.len() };
    // SAFETY: the space is writable and as long as said; -1: a pipe has no position.
    let moved = judge(unsafe { libc::preadv2(pipe, &part, 1, -1, libc::RWF_NOWAIT) })?;
    if let Moved::Some(count) = moved {
        sender.commit(count)?;
    }
    Ok(moved)
}

/// Waits for the pipe, unless the caller must not wait for it.
fn wait_for_pipe(pipe: c_int, events: libc::c_short, flags: c_uint) -> io::Result<()> {
    // SAFETY: no pointers.
    let own = unsafe { libc::fcntl(pipe, libc::F_GETFL) };
    if flags & libc::SPLICE_F_NONBLOCK != 0 || (own >= 0 && own & libc::O_NONBLOCK != 0) {
        return Err(errno::error(libc::EAGAIN));
    }
    let mut entry = libc::pollfd { fd: pipe, events, revents: 0 };
    wait::sleep(std::slice::from_mut(&mut entry), None, None).map(|_| ())
}
