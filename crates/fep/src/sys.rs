//! The calls to the operating system that need unsafe code.

use std::io;

/// What a thread has used so far, as the kernel accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// CPU time in user mode, nanoseconds.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel on the thread's behalf, nanoseconds.
    pub(crate) system_ns: u64,
}

/// The calling thread's CPU time (getrusage RUSAGE_THREAD).
pub(crate) fn thread_usage() -> io::Result<ThreadUsage> {
    // SAFETY: rusage is a plain C structure of integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid, exclusively borrowed rusage for the length of the call.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ThreadUsage { user_ns: nanoseconds(usage.ru_utime), system_ns: nanoseconds(usage.ru_stime) })
}

fn nanoseconds(time: libc::timeval) -> u64 {
    (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1_000
}

/// Blocks every signal in the calling thread, so that a stack inside an application never runs its handlers.
pub(crate) fn block_all_signals() -> io::Result<()> {
    // SAFETY: sigset_t is a plain bit set, for which all zeroes is a value; sigfillset overwrites it.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is valid for writing.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: `all` is an initialised set; a null old set is allowed.
    let answer = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

/// The size of a page of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf takes no pointers and is always safe to call.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}
