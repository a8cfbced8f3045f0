//! Whether a descriptor is of a file that can be read while others wait.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{FileType, fstat};

/// Has no storage, and does not know reading without waiting.
const TMPFS: libc::c_long = 0x0102_1994;

/// The file systems whose files are taken (`statfs(2)`): those of the kernel itself, over storage of the administrator's
/// choice, whose reading waits for nobody else's program. Of an overlay the trial below tells whether what is beneath can.
const FILE_SYSTEMS: [libc::c_long; 7] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    TMPFS,
    0xf2f5_2010, // F2FS
    0xe0f5_e1e2, // EROFS
    0x794c_7630, // overlay
];

/// Takes a regular file that was opened for reading and of which what is in memory can be read without waiting; whether that
/// is always all of it.
///
/// # Errors
/// Why not.
pub(super) fn check(file: BorrowedFd<'_>) -> io::Result<bool> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, the place as large as the call wants.
    if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled everything in.
    let kind = unsafe { about.assume_init() }.f_type as libc::c_long;
    if !FILE_SYSTEMS.contains(&kind) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let in_memory = kind == TMPFS;
    try_reading(file, if in_memory { 0 } else { libc::RWF_NOWAIT })?;
    Ok(in_memory)
}

fn try_reading(file: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<()> {
    let mut byte = 0u8;
    let vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: one vector of one writable byte that lives during the call.
    let count = unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, 0, flags) };
    if count >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // It could tell that it would have to wait.
        error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
        error => Err(error),
    }
}
