//! A laboratory: private network namespaces with links, TAP devices and programs in them, for tests and measurements.
//!
//! Everything that a [`Lab`] makes vanishes with the process that made it, however that process ends. A namespace has
//! no name in `/run/netns`: it lives as long as a descriptor of this process (or a program inside) holds it. Devices
//! live and die with their namespace. Files lie in a memory file system mounted in a mount namespace of this process.
//! Programs ask the kernel to kill them when their parent dies. So nothing runs or stays configured after a panic, an
//! interrupt or a SIGKILL alike; after a SIGKILL an empty folder and empty control groups remain, which the next
//! laboratory removes.
//!
//! It works as root, or without root inside an unprivileged user namespace, or it fails with the reason
//! ([`Unavailable`]).
//!
//! - A command calls [`enter`] first thing in `main`, before it starts a thread, then [`Lab::new`].
//! - A test is written with [`lab_test!`](crate::lab_test), which runs its body in a process of its own.
//!
//! Read [`Lab`], then [`Namespace`], then [`Process`]; [`cpu`] measures what processes and the machine spend;
//! [`Fep`] starts a front-end processor and [`Fep::run`] an application on it.

pub mod cpu;
mod enter;
mod fep;
mod isolated;
mod namespace;
mod process;
mod sys;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use enter::{Unavailable, enter};
pub use fep::{Fep, FepConfig, executable};
pub use isolated::isolated;
pub use namespace::{Link, LinkEnd, Namespace, wait_for_port};
pub use process::{Process, Spawn};
pub use sys::is_at_mark;

/// One laboratory: a place for files, and the maker of namespaces.
///
/// Order of calls: [`enter`] (done by [`lab_test!`](crate::lab_test)), then [`Lab::new`], then anything.
#[derive(Debug)]
pub struct Lab {
    directory: sys::PrivateDirectory,
}

impl Lab {
    /// Makes an empty laboratory with a private memory file system.
    pub fn new() -> Result<Self> {
        let directory = sys::PrivateDirectory::new().context("cannot make the laboratory's directory")?;
        Ok(Self { directory })
    }

    /// A folder on a memory file system (tmpfs) that only this process and its children see.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file in [`directory`](Self::directory).
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// A new network namespace in which only the loopback device exists, and is up. `name` is for messages.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::new(name)
    }

    /// Starts a program; its output goes to files `NAME.out` and `NAME.err` of the laboratory's folder.
    pub fn start(&self, name: &str, spawn: Spawn) -> Result<Process> {
        Process::start(self.directory(), name, spawn)
    }
}
