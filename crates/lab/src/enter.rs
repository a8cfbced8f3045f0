//! Getting the rights that a laboratory needs.

use std::fmt;
use std::io;

use crate::sys::{self, UserMap};

/// Why there can be no laboratory here.
#[derive(Debug)]
pub struct Unavailable {
    reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network namespaces cannot be made here: {}", self.reason)
    }
}

impl std::error::Error for Unavailable {}

/// How the rights are to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// This process has them.
    Root,
    /// A user namespace gives them.
    UserNamespace,
}

/// Enters the laboratory: from here on this process may make namespaces, and its mounts are its own.
///
/// Call it first in `main`: a process with several threads cannot enter a user namespace.
pub fn enter() -> Result<(), Unavailable> {
    let entered = match way()? {
        Way::Root => sys::enter(None),
        Way::UserNamespace => sys::enter(Some(&UserMap::of_this_user())),
    };
    entered.map_err(|error| Unavailable::new(explain(&error)))
}

/// Finds out how the rights are to be had, or why they are not.
pub(crate) fn way() -> Result<Way, Unavailable> {
    if has_capabilities() {
        return Ok(Way::Root);
    }
    match std::fs::read_to_string("/proc/sys/user/max_user_namespaces") {
        Ok(limit) if limit.trim() == "0" => Err(Unavailable::new(
            "not root, and user namespaces are switched off (user.max_user_namespaces is 0)",
        )),
        Ok(_) => Ok(Way::UserNamespace),
        Err(error) => {
            Err(Unavailable::new(format!("not root, and no user namespaces in this kernel ({error})")))
        }
    }
}

/// Checks that TAP devices can be made by somebody with the rights.
pub(crate) fn check_tap() -> Result<(), Unavailable> {
    match std::fs::File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Unavailable::new(format!("/dev/net/tun does not open ({error}); as root it would")))
        }
    }
}

/// What a refusal by the kernel means here.
pub(crate) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "neither root nor allowed to make user namespaces (EPERM)".to_owned(),
        Some(libc::EINVAL) => {
            "user namespaces must be entered before the first thread starts (EINVAL)".to_owned()
        }
        Some(libc::ENOSPC) => "the limit on user namespaces is reached (ENOSPC)".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether this process may administer the network and mounts.
fn has_capabilities() -> bool {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let needed = CAP_NET_ADMIN | CAP_SYS_ADMIN;
    effective & needed == needed
}
