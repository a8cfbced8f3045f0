//! Files that the program sends from: lent to the FEP, which then reads them in the program's place.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use outboard::raw::{LentFile, Socket};

use crate::description::Description;
use crate::table::{self, Held};

/// A file with less left to send is not worth lending.
const WORTH: u64 = 256 << 10;

/// A file behind a descriptor of the program's. It stands in the table of descriptors so that it is given back when the last
/// of them is closed.
pub(crate) struct SentFile {
    lent: LentFile,
    identity: Identity,
}

/// What tells a file from another that has its descriptor later, should the change have passed unseen. The time: an overlay
/// file system gives a file that is copied up the same number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    number: libc::ino_t,
    changed: (libc::time_t, libc::c_long),
}

impl SentFile {
    /// As the FEP knows it.
    pub(crate) fn lent(&self) -> &LentFile {
        &self.lent
    }
}

/// The lent file behind `fd`, and its size now. `None`: not lent (yet), its bytes are to be copied.
pub(crate) fn lent(fd: c_int, position: u64, socket: &Socket) -> Option<(Held, u64)> {
    let found = table::find(fd);
    if found.as_deref().and_then(Description::file).is_some_and(|file| file.lent.is_refused()) {
        return None;
    }
    let (identity, size) = look_at(fd)?;
    match found {
        Some(held) if held.file().is_some_and(|file| file.identity == identity) => return Some((held, size)),
        Some(held) if held.file().is_none() => return None,
        Some(_) | None => {}
    }
    if size.saturating_sub(position) < WORTH || !table::in_own_process() {
        drop(table::remove(fd));
        return None;
    }
    // SAFETY: the program's descriptor is open: it has just been looked at.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(lent) = socket.endpoint().lend(file) {
        drop(table::insert(fd, Held::new(Description::File(SentFile { lent, identity }))));
    }
    None
}

/// What identifies a regular file, and its size.
fn look_at(fd: c_int) -> Option<(Identity, u64)> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place is as large as the call wants.
    if unsafe { libc::fstat(fd, about.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it has filled everything in.
    let about = unsafe { about.assume_init() };
    let identity = Identity {
        device: about.st_dev,
        number: about.st_ino,
        changed: (about.st_ctime, about.st_ctime_nsec),
    };
    let regular = about.st_mode & libc::S_IFMT == libc::S_IFREG;
    regular.then(|| (identity, u64::try_from(about.st_size).unwrap_or(0)))
}
