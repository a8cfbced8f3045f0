//! sendfile. The FEP reads the file where it can be lent ([`crate::file`]); else its bytes are read straight into
//! the send ring: one copy.

use std::ffi::{c_int, c_void};
use std::io;
use std::time::Duration;

use libc::{off_t, size_t, ssize_t};
use outboard::raw::{Interest, MIN_FILL, Socket};

use crate::calls::carried;
use crate::description::{InetSocket, Kind};
use crate::table::Held;
use crate::transfer::with_sigpipe;
use crate::{errno, file, real, table, wait};

/// The most that one call sends, as in the kernel (`MAX_RW_COUNT`).
const MOST: usize = 0x7fff_f000;
/// Asked of the ring at once.
const PIECE: usize = 256 * 1024;
/// How long a call that may wait waits for the FEP to take a file, if so much of it is left. On the FEP's own processor it could
/// take none while a program copies.
const ANSWER: Duration = Duration::from_millis(1);
const WORTH_WAITING: usize = 1 << 20;

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
    let mut lent = None;
    // The first look lends a file that is not, the next one finds it.
    let mut looks = 2;
    let mut has_waited = socket.nonblocking();
    let mut done = 0;
    let outcome = loop {
        if done == count {
            break Ok(());
        }
        let wanted = (count - done).min(PIECE);
        if lent.is_none() && looks > 0 && wanted >= MIN_FILL {
            looks -= 1;
            lent = source.lent(outboard);
        }
        // The FEP has a piece to go on with, and what is left is worth a moment: copied, it would take longer.
        if let Some((file, _)) = &lent
            && !has_waited
            && count - done >= WORTH_WAITING
        {
            has_waited = true;
            file.file().inspect(|file| file.lent().wait(ANSWER));
        }
        let piece = match &lent {
            Some((file, size)) => source.lent_piece(outboard, file, *size, wanted),
            None => one_piece(outboard, &mut source, wanted),
        };
        match piece {
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

impl Source {
    /// The file behind the descriptor with its size, if it is lent to the FEP.
    fn lent(&self, outboard: &Socket) -> Option<(Held, u64)> {
        file::lent(self.fd, self.begin()?, outboard)
    }

    /// Where the next byte is.
    fn begin(&self) -> Option<u64> {
        let position = match self.position {
            Some(position) => position,
            // SAFETY: no pointers.
            None => unsafe { libc::lseek64(self.fd, 0, libc::SEEK_CUR) },
        };
        u64::try_from(position).ok()
    }

    /// Has the FEP read a piece, or copies it where that is better.
    fn lent_piece(&mut self, outboard: &Socket, held: &Held, size: u64, wanted: usize) -> io::Result<usize> {
        let (Some(file), Some(begin)) = (held.file(), self.begin()) else {
            return one_piece(outboard, self, wanted);
        };
        let left = usize::try_from(size.saturating_sub(begin)).unwrap_or(usize::MAX);
        let sent = outboard.sender().send_file(file.lent(), begin, wanted.min(left))?;
        let Some(sent) = sent else { return one_piece(outboard, self, wanted) };
        match &mut self.position {
            Some(position) => *position += sent as off_t,
            // SAFETY: no pointers.
            None => _ = unsafe { libc::lseek64(self.fd, sent as off_t, libc::SEEK_CUR) },
        }
        Ok(sent)
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
