//! What the laboratory asks of the kernel: namespaces, mounts, and how a child process begins.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::Signal;
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags};

/// What the names of a laboratory's folder and control groups begin with; then comes the maker's process id.
pub(crate) const PREFIX: &str = "outboard-lab-";

/// Whether a name is that of something whose maker is gone.
pub(crate) fn is_stale(name: &str) -> bool {
    let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    maker.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
}

/// Removes the empty folders that killed processes could not; what was mounted on them went with the processes.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten().filter(|entry| is_stale(&entry.file_name().to_string_lossy())) {
        let _ = std::fs::remove_dir(entry.path());
    }
}

/// A folder in memory, mounted where only this mount namespace sees it.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    directory: tempfile::TempDir,
}

impl PrivateDirectory {
    pub(crate) fn new() -> io::Result<Self> {
        remove_stale();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir()?;
        let mount = |options: Option<&CStr>| {
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, options)
        };
        // Huge pages where the kernel has them: a page of 4 KiB costs more to get than its bytes cost to copy, and files
        // are not what is examined here.
        mount(Some(c"huge=always")).or_else(|_| mount(None))?;
        Ok(Self { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // Lazily: a program that is just ending may still stand in it. It goes with the mount namespace anyway.
        let _ = rustix::mount::unmount(self.directory.path(), UnmountFlags::DETACH);
    }
}

/// Whether the next byte of a kernel's TCP socket is its peer's urgent one (sockatmark(3)).
pub fn is_at_mark(socket: impl AsFd) -> io::Result<bool> {
    // SAFETY: no pointers.
    match unsafe { sockatmark(socket.as_fd().as_raw_fd()) } {
        -1 => Err(io::Error::last_os_error()),
        at_mark => Ok(at_mark != 0),
    }
}

unsafe extern "C" {
    /// Of the C library; the `libc` crate does not declare it.
    fn sockatmark(socket: libc::c_int) -> libc::c_int;
}

/// What all threads of a process have spent of the processors, those that have ended included.
pub(crate) fn process_clock(id: u32) -> io::Result<std::time::Duration> {
    let mut clock = 0;
    // SAFETY: the call writes one clock id to the place given.
    let error = unsafe { libc::clock_getcpuclockid(id.cast_signed(), &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to the place given.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(std::time::Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// User and system time of the children that this process has waited for.
pub(crate) fn usage_of_ended_children() -> io::Result<[std::time::Duration; 2]> {
    // SAFETY: all-zero is a value of this plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one rusage to the place given.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let duration = |time: libc::timeval| {
        std::time::Duration::from_secs(time.tv_sec.unsigned_abs())
            + std::time::Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok([duration(usage.ru_utime), duration(usage.ru_stime)])
}

/// The lines that map this user to root in a new user namespace; computed before a fork, written after it.
#[derive(Debug, Clone)]
pub(crate) struct UserMap {
    uid: String,
    gid: String,
}

impl UserMap {
    pub(crate) fn of_this_user() -> Self {
        Self {
            uid: format!("0 {} 1", rustix::process::geteuid().as_raw()),
            gid: format!("0 {} 1", rustix::process::getegid().as_raw()),
        }
    }

    fn write(&self) -> io::Result<()> {
        let write =
            |path: &str, text: &str| File::options().write(true).open(path)?.write_all(text.as_bytes());
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &self.uid)?;
        write("/proc/self/gid_map", &self.gid)
    }
}

/// Gives this process a mount namespace of its own whose mounts nobody else sees; with `user` also a user namespace in
/// which it is root, and a network namespace. The process must have one thread only if `user` is given.
pub(crate) fn enter(user: Option<&UserMap>) -> io::Result<()> {
    let flags = match user {
        Some(_) => UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET,
        None => UnshareFlags::NEWNS,
    };
    // SAFETY: descriptors are not unshared (no CLONE_FILES), so no descriptor's meaning changes for other threads.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    if let Some(map) = user {
        map.write()?;
    }
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Makes a new network namespace for the calling thread and gives the descriptor that holds it.
pub(crate) fn new_network_namespace() -> io::Result<OwnedFd> {
    // SAFETY: descriptors are not unshared (no CLONE_FILES); only this thread changes its network namespace.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Moves the calling thread into a network namespace.
pub(crate) fn join_network_namespace(namespace: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// How a child process begins, between fork and exec.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// A network namespace to move into.
    pub(crate) network: Option<OwnedFd>,
    /// `cgroup.procs` of each control group to join.
    pub(crate) groups: Vec<OwnedFd>,
    /// The processors it may run on.
    pub(crate) processors: Option<CpuSet>,
    /// A user and a mount namespace of its own, as [`enter`] makes them (the `Option` inside is `enter`'s argument).
    pub(crate) enter: Option<Option<UserMap>>,
}

/// Makes `command` begin as told, in a process group of its own, and die when the thread that starts it dies.
pub(crate) fn begin(command: &mut Command, beginning: Beginning) {
    let parent = rustix::process::getpid();
    let hook = move || -> io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for group in &beginning.groups {
            rustix::io::write(group, b"0")?;
        }
        if let Some(user) = &beginning.enter {
            enter(user.as_ref())?;
        }
        if let Some(network) = &beginning.network {
            join_network_namespace(network.as_fd())?;
        }
        if let Some(processors) = &beginning.processors {
            rustix::thread::sched_setaffinity(None, processors)?;
        }
        Ok(())
    };
    command.process_group(0);
    // SAFETY: between fork and exec the hook makes system calls only and takes no lock; opening the three files of a
    // user map may allocate, which glibc allows in a forked child (its allocator is usable there).
    unsafe { command.pre_exec(hook) };
}
