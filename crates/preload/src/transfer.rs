//! Receiving and sending on one socket: the rules of the `MSG_` flags, of blocking and of `SIGPIPE`, for all the
//! functions in `calls` that differ only in how their arguments come.

use std::ffi::c_int;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Instant;

use outboard::raw::{Datagram, DatagramOptions, Interest, Manner, QueuedError, Socket};

use crate::description::{InetSocket, Kind, Phase};
use crate::gather::{self, Gathered};
use crate::runtime::for_stack;
use crate::{errno, fast_open, fork, wait};

/// What a receive gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// What the call returns.
    pub(crate) count: usize,
    /// The sender of a datagram.
    pub(crate) remote: Option<SocketAddr>,
    /// Whether the datagram was cut.
    pub(crate) truncated: bool,
    /// Whether it is an urgent byte out of the line.
    pub(crate) urgent: bool,
    /// The datagram, with what came with it.
    pub(crate) datagram: Option<Datagram>,
    /// The entry of the queue of errors.
    pub(crate) queued: Option<Box<QueuedError>>,
}

/// Receives on a socket whose traffic the stack carries, alone or beside the kernel. `None`: the kernel's socket is
/// the one that has something; `fd` is asked for it then.
pub(crate) fn receive(
    fd: c_int,
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Option<Received>> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return receive_error(socket, outboard, buffers);
    }
    match socket.kind {
        Kind::Stream => {
            fork::in_turn(socket, outboard, |outboard| receive_stream(socket, outboard, buffers, flags))
                .map(Some)
        }
        Kind::Datagram => receive_datagram(fd, socket, outboard, buffers, flags),
    }
}

/// Takes an entry of the queue of errors (Linux: `ip_recv_error`); it never waits. `None`: the kernel's socket may have one.
fn receive_error(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<Option<Received>> {
    let Some(error) = outboard.take_queued_error()? else {
        if socket.phase() == Phase::Both {
            return Ok(None);
        }
        return Err(errno::error(libc::EAGAIN));
    };
    let mut rest = &error.payload[..];
    for buffer in buffers {
        let (now, later) = rest.split_at(buffer.len().min(rest.len()));
        buffer[..now.len()].copy_from_slice(now);
        rest = later;
    }
    Ok(Some(Received {
        count: error.payload.len() - rest.len(),
        remote: error.destination,
        truncated: !rest.is_empty(),
        queued: Some(Box::new(error)),
        ..Received::default()
    }))
}

fn receive_stream(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Received> {
    let length = total(buffers);
    if only_counts(socket, flags) {
        return count(socket, outboard, length, flags);
    }
    if flags & libc::MSG_OOB != 0 {
        return receive_urgent(outboard, buffers, flags);
    }
    let peek = flags & libc::MSG_PEEK != 0;
    if let Some(behind) = peeks_behind(socket, flags) {
        let attempt = || outboard.receiver().peek_behind(behind, buffers);
        return peek_behind(socket, outboard, behind, length, flags, attempt);
    }
    receive_in_parts(socket, outboard, length, flags, |done| match done {
        0 => outboard.recv(buffers, peek),
        _ => receive_behind(outboard, buffers, done),
    })
}

/// Where a look with these flags begins, if that is not at the beginning (`SO_PEEK_OFF`).
fn peeks_behind(socket: &InetSocket, flags: c_int) -> Option<u64> {
    if flags & libc::MSG_PEEK == 0 { None } else { u64::try_from(socket.peek_offset()).ok() }
}

/// Looks by `attempt` behind the first bytes until that gives as much as is asked for, or all that it will.
fn peek_behind(
    socket: &InetSocket,
    outboard: &Socket,
    behind: u64,
    length: usize,
    flags: c_int,
    mut attempt: impl FnMut() -> io::Result<usize>,
) -> io::Result<Received> {
    let all = flags & libc::MSG_WAITALL != 0;
    let wanted = if all { length } else { outboard.low_water().min(length) };
    let mut deadline = LazyDeadline::new(|| socket.receive_deadline());
    let mut more = !socket.may_not_wait(flags);
    loop {
        let seen = outboard.received_total();
        let outcome = attempt();
        let is_short = match &outcome {
            Ok(count) => (1..wanted).contains(count) && !outboard.has_mark_at(behind + *count as u64),
            Err(error) => errno::is_again(error),
        };
        if !is_short || !more {
            let count = outcome?;
            socket.move_peek_offset(true, count);
            return Ok(Received { count, ..Received::default() });
        }
        match outboard.wait_for_more(seen, deadline.get()) {
            Ok(is_more) => more = is_more,
            // What there is by then is given.
            Err(_) if outcome.is_ok() => more = false,
            Err(error) => return Err(error),
        }
    }
}

/// Whether a receive with these flags touches no buffer, which may be nowhere then.
pub(crate) fn only_counts(socket: &InetSocket, flags: c_int) -> bool {
    let others = libc::MSG_OOB | libc::MSG_ERRQUEUE;
    socket.kind == Kind::Stream && flags & (libc::MSG_TRUNC | others) == libc::MSG_TRUNC
}

/// Takes, or only counts, up to `length` bytes of a stream and gives them to nobody (`MSG_TRUNC`, tcp(7)).
pub(crate) fn count(
    socket: &InetSocket,
    outboard: &Socket,
    length: usize,
    flags: c_int,
) -> io::Result<Received> {
    if let Some(behind) = peeks_behind(socket, flags) {
        let count = || Ok(outboard.receiver().count_behind(behind)?.min(length));
        return peek_behind(socket, outboard, behind, length, flags, count);
    }
    let peek = flags & libc::MSG_PEEK != 0;
    receive_in_parts(socket, outboard, length, flags, |done| match outboard.receivable() {
        there if peek && there > 0 => Ok(there.min(length)),
        _ if peek => Ok(outboard.receiver().fill_buf()?.len().min(length)),
        _ => outboard.discard(length - done),
    })
}

/// Receives until there is as much as the flags and the low-water mark ask for. `attempt` takes what is there, behind the first
/// so many bytes.
fn receive_in_parts(
    socket: &InetSocket,
    outboard: &Socket,
    length: usize,
    flags: c_int,
    mut attempt: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<Received> {
    let peek = flags & libc::MSG_PEEK != 0;
    let all = flags & libc::MSG_WAITALL != 0;
    let low_water = outboard.low_water();
    let mut deadline = LazyDeadline::new(|| socket.receive_deadline());
    // What is peeked at is not taken, and less than the low-water mark is waited with.
    let wanted = if all && peek { length } else { low_water.min(length) };
    if wanted > 1 && !socket.may_not_wait(flags) {
        match outboard.wait_for_bytes(wanted, deadline.get()) {
            Err(error) if outboard.receivable() == 0 => return Err(error),
            // What there is by then is given.
            Ok(_) | Err(_) => {}
        }
    }
    let mut done = 0;
    loop {
        if done > 0 && outboard.is_at_mark() {
            break;
        }
        match attempt(done) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                if !all || peek || done == length {
                    break;
                }
            }
            Err(error) if errno::is_again(&error) && !socket.may_not_wait(flags) => {
                let waited = match low_water {
                    1 => wait::for_socket(outboard, Interest::READABLE, deadline.get()),
                    _ => wait_for_bytes(outboard, low_water.min(length - done), deadline.get()),
                };
                match waited {
                    Err(_) if done > 0 => break,
                    other => other?,
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    if !peek {
        socket.move_peek_offset(false, done);
    }
    Ok(Received { count: done, ..Received::default() })
}

fn wait_for_bytes(outboard: &Socket, count: usize, deadline: Option<Instant>) -> io::Result<()> {
    if outboard.wait_for_bytes(count, deadline)? { Ok(()) } else { Err(errno::error(libc::EAGAIN)) }
}

/// Receives the urgent byte, out of the line (Linux: `tcp_recv_urg`).
fn receive_urgent(outboard: &Socket, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> io::Result<Received> {
    let Some(byte) = outboard.recv_urgent(flags & libc::MSG_PEEK != 0)? else {
        return Ok(Received::default());
    };
    let place = buffers.iter_mut().find(|buffer| !buffer.is_empty());
    let truncated = place.is_none();
    if let Some(place) = place.filter(|_| flags & libc::MSG_TRUNC == 0) {
        place[0] = byte;
    }
    Ok(Received { count: usize::from(!truncated), truncated, urgent: true, ..Received::default() })
}

/// Receives into what is behind the first `done` bytes of `buffers`.
fn receive_behind(outboard: &Socket, buffers: &mut [IoSliceMut<'_>], mut done: usize) -> io::Result<usize> {
    for buffer in buffers {
        if done < buffer.len() {
            return outboard.recv(&mut [IoSliceMut::new(&mut buffer[done..])], false);
        }
        done -= buffer.len();
    }
    Ok(0)
}

fn receive_datagram(
    fd: c_int,
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> io::Result<Option<Received>> {
    let mut deadline = LazyDeadline::new(|| socket.receive_deadline());
    let peek = flags & libc::MSG_PEEK != 0;
    let offset = peeks_behind(socket, flags);
    let room = if offset.is_some() { total(buffers) } else { 0 };
    let mut more = true;
    loop {
        let seen = if offset.is_some() { outboard.received_total() } else { 0 };
        let received = match offset {
            None => outboard.recv_from(buffers, peek),
            Some(offset) => outboard.peek_from_offset(offset, buffers),
        };
        match received {
            Ok(datagram) => {
                let whole = flags & libc::MSG_TRUNC != 0;
                let count = if whole { datagram.length } else { datagram.copied };
                socket.move_peek_offset(peek, count);
                // Linux: from an offset on it was cut too where it ends with the buffers (`udp_recvmsg`).
                let fills = offset.is_some() && datagram.copied == room;
                return Ok(Some(Received {
                    count,
                    remote: Some(datagram.remote),
                    truncated: datagram.copied < datagram.length && (offset.is_none() || fills),
                    datagram: Some(datagram),
                    ..Received::default()
                }));
            }
            Err(error) if errno::is_again(&error) => {}
            Err(error) => return Err(error),
        }
        // Linux: a call that may not wait does not look at the end.
        if outboard.is_read_shut() && !socket.may_not_wait(flags) {
            return Ok(Some(Received::default()));
        }
        let both = socket.phase() == Phase::Both;
        if both {
            let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            if matches!(wait::sleep(std::slice::from_mut(&mut entry), Some(Instant::now()), None), Ok(1)) {
                socket.note_kernel_peeked();
                return Ok(None);
            }
        }
        if socket.may_not_wait(flags) || !more {
            return Err(errno::error(libc::EAGAIN));
        }
        // What is there already and before the offset does not end the wait.
        if both && offset.is_some() {
            more = wait::for_more_of_both(fd, outboard, seen, deadline.get())?;
        } else if both {
            wait::for_both(fd, deadline.get())?;
        } else if offset.is_some() {
            more = outboard.wait_for_more(seen, deadline.get())?;
        } else {
            wait::for_socket(outboard, Interest::READABLE, deadline.get())?;
        }
    }
}

/// Sends on the stack's socket; `SIGPIPE` is raised as Linux does.
pub(crate) fn send(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
) -> io::Result<usize> {
    let options = DatagramOptions { segment: socket.segment(), ..DatagramOptions::default() };
    send_with(socket, outboard, buffers, remote, flags, options, None)
}

/// As [`send`], a datagram with options of its own; `stamps`: the flags of `SO_TIMESTAMPING` that count for it.
pub(crate) fn send_with(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
    options: DatagramOptions,
    stamps: Option<u32>,
) -> io::Result<usize> {
    let send = |outboard: &Socket| send_unstamped(socket, outboard, buffers, remote, flags, options);
    let sent = fork::in_turn(socket, outboard, send);
    if flags & libc::MSG_ZEROCOPY != 0 && socket.tells_copied() && sent.as_ref().is_ok_and(|&count| count > 0)
    {
        outboard.tell_copied();
    }
    let wanted = socket.timestamping.of_send(stamps);
    if wanted != 0
        && sent.as_ref().is_ok_and(|&count| count > 0 || socket.kind == Kind::Datagram)
        && !socket.gathers()
    {
        socket.timestamping.after_send(socket.kind, outboard, wanted);
    }
    sent
}

fn send_unstamped(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
    options: DatagramOptions,
) -> io::Result<usize> {
    match socket.kind {
        Kind::Stream => {
            let begins = outboard.begins_with_send();
            if begins && socket.may_not_wait(flags) {
                let first = fast_open::first_part(outboard, buffers);
                return with_sigpipe(flags, send_stream(socket, outboard, &first, flags));
            }
            let mut sent = send_stream(socket, outboard, buffers, flags);
            if begins {
                sent = sent.and_then(|count| fast_open::outcome(socket, outboard, count));
            }
            with_sigpipe(flags, sent)
        }
        Kind::Datagram => send_datagram(socket, outboard, buffers, remote, flags, options),
    }
}

/// A blocking send takes everything, unless something ends it.
fn send_stream(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    flags: c_int,
) -> io::Result<usize> {
    let length = total(buffers);
    // Where a send is taken in parts, more follows the first alone.
    let (manner, rest) = match (flags & libc::MSG_OOB != 0, flags & libc::MSG_MORE != 0) {
        (true, _) => (Manner::Urgent, Manner::Urgent),
        (false, true) => (Manner::More, Manner::Plain),
        (false, false) => (Manner::Plain, Manner::Plain),
    };
    let mut deadline = LazyDeadline::new(|| socket.send_deadline());
    let mut done = 0;
    loop {
        let attempt = match done {
            0 => outboard.send_in(buffers, manner),
            _ => send_behind(outboard, buffers, done, rest),
        };
        match attempt {
            Ok(count) => {
                done += count;
                if done == length || (count > 0 && socket.may_not_wait(flags)) {
                    return Ok(done);
                }
            }
            Err(error) if errno::is_again(&error) && !socket.may_not_wait(flags) => {
                match wait::for_socket(outboard, Interest::WRITABLE, deadline.get()) {
                    Err(_) if done > 0 => return Ok(done),
                    other => other?,
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

fn send_behind(
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    mut done: usize,
    manner: Manner,
) -> io::Result<usize> {
    for (index, buffer) in buffers.iter().enumerate() {
        if done < buffer.len() {
            let first = outboard.send_in(&[IoSlice::new(&buffer[done..])], manner)?;
            if first < buffer.len() - done || index + 1 == buffers.len() {
                return Ok(first);
            }
            return Ok(first + outboard.send_in(&buffers[index + 1..], manner).unwrap_or(0));
        }
        done -= buffer.len();
    }
    Ok(0)
}

fn send_datagram(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
    options: DatagramOptions,
) -> io::Result<usize> {
    if flags & libc::MSG_OOB != 0 {
        return Err(errno::error(libc::EOPNOTSUPP));
    }
    if let Some(gathered) = gather::add(socket, outboard, buffers, remote, flags, options)? {
        return match gathered {
            Gathered::Kept(count) => Ok(count),
            Gathered::Whole { count, bytes, remote, options } => {
                queue_datagram(socket, outboard, &[IoSlice::new(&bytes)], remote, flags, options)?;
                Ok(count)
            }
        };
    }
    queue_datagram(socket, outboard, buffers, remote, flags, options)
}

/// Sends what a corked datagram socket has gathered.
pub(crate) fn uncork(socket: &InetSocket, outboard: &Socket) -> io::Result<()> {
    match gather::take(socket) {
        Some((bytes, remote, options)) => {
            queue_datagram(socket, outboard, &[IoSlice::new(&bytes)], remote, 0, options).map(|_| ())
        }
        None => Ok(()),
    }
}

fn queue_datagram(
    socket: &InetSocket,
    outboard: &Socket,
    buffers: &[IoSlice<'_>],
    remote: Option<SocketAddr>,
    flags: c_int,
    options: DatagramOptions,
) -> io::Result<usize> {
    if options.source.is_some_and(|source| !outboard.endpoint().is_local(source)) {
        return Err(errno::error(libc::ENETUNREACH));
    }
    let mut deadline = LazyDeadline::new(|| socket.send_deadline());
    loop {
        match outboard.send_to_with(buffers, remote.map(for_stack), options) {
            Err(error) if errno::is_again(&error) && !socket.may_not_wait(flags) => {
                wait::for_socket(outboard, Interest::WRITABLE, deadline.get())?;
            }
            other => return other,
        }
    }
}

/// Raises `SIGPIPE` in this thread for a stream that cannot send any more, unless the flags say not to.
pub(crate) fn with_sigpipe<T>(flags: c_int, result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && error.raw_os_error() == Some(libc::EPIPE)
        && flags & libc::MSG_NOSIGNAL == 0
    {
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    result
}

fn total(buffers: &[impl std::ops::Deref<Target = [u8]>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// A deadline that is only computed (a look at the clock) when the call must wait.
struct LazyDeadline<F> {
    compute: F,
    known: Option<Option<Instant>>,
}

impl<F: Fn() -> Option<Instant>> LazyDeadline<F> {
    fn new(compute: F) -> Self {
        Self { compute, known: None }
    }

    fn get(&mut self) -> Option<Instant> {
        *self.known.get_or_insert_with(|| (self.compute)())
    }
}
