//! The one system call that no safe wrapper has: asking how signals are handled.

use std::ffi::c_int;

/// Whether a signal handler that just ran may have asked for `EINTR`: a wait with a time limit always gives that, a
/// socket call only if the handler was installed without `SA_RESTART` (signal(7)). Which handler ran cannot be told,
/// so one of that kind among all is enough.
pub(crate) fn handlers_interrupt() -> bool {
    (1..=64).any(|signal: c_int| {
        // SAFETY: plain data that the call fills in.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only; a signal number that is refused leaves the data as it is.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
        asked == 0
            && action.sa_sigaction != libc::SIG_DFL
            && action.sa_sigaction != libc::SIG_IGN
            && action.sa_flags & libc::SA_RESTART == 0
    })
}
