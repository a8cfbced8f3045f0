//! The calls to the operating system that need unsafe code.

use std::io;

/// What a thread has used so far, as the kernel accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    /// CPU time in user mode, nanoseconds.
    pub(crate) user_ns: u64,
    /// CPU time in the kernel on the thread's behalf, nanoseconds.
    pub(crate) system_ns: u64,
    /// How often others ran in its place although it did not wait.
    pub(crate) preemptions: u64,
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
    Ok(ThreadUsage {
        user_ns: nanoseconds(usage.ru_utime),
        system_ns: nanoseconds(usage.ru_stime),
        preemptions: usage.ru_nivcsw.unsigned_abs(),
    })
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

/// The part of `struct sched_attr` that every kernel has which knows the calls (sched_setattr(2)).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulingAttributes {
    size: u32,
    pub(crate) policy: u32,
    flags: u64,
    pub(crate) nice: i32,
    priority: u32,
    /// Of a thread of the usual policy: its slice in nanoseconds, 0 where the kernel knows of none (before 6.12).
    pub(crate) runtime: u64,
    deadline: u64,
    period: u64,
}

/// How the calling thread is scheduled.
pub(crate) fn scheduling() -> io::Result<SchedulingAttributes> {
    let mut attributes = SchedulingAttributes::default();
    let size = size_of::<SchedulingAttributes>();
    // SAFETY: the kernel writes at most `size` bytes, which the structure has; 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if answer == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Has the calling thread scheduled so.
pub(crate) fn set_scheduling(attributes: &SchedulingAttributes) -> io::Result<()> {
    // SAFETY: the structure is valid for reading, and says its size; 0 is the calling thread.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
