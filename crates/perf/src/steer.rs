//! Whose processors take packets in.
//!
//! Over a veth pair whoever sends a packet also runs the other host's part of taking it in: neither bandwidth nor processor
//! time is then that of hosts with network cards of their own. Two ways put that right, at different prices.
//!
//! - [`Steer::Rps`], receive packet steering: a host's packets are taken in by softirqs of its own processors. Packets stay as large
//!   as they were sent; each batch is an interrupt across processors, and what such an interrupt does on an idle
//!   processor is in nobody's processor time.
//! - [`Steer::Napi`]: the kernel's host takes packets in on a kernel thread of its device, which belongs to its processors and whose time
//!   is exact. veth has such threads for packets of the link's MTU only, so that host's peer cuts what it sends, and the host puts
//!   it together again (GRO), as with a card. What the host sends stays large, and the peer takes it in by steering. Other subjects'
//!   links stay as they are: a TAP device has no such thread, and behind a card it is given what GRO has put together.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use lab::cpu::{self, CpuTime};
use lab::{Lab, Namespace};

/// Who takes packets in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Steer {
    /// The processor of whoever sends.
    #[default]
    No,
    /// Softirqs of the receiving host's processors.
    Rps,
    /// The kernel's host: a thread of its device. The peers: as [`Steer::Rps`].
    Napi,
}

impl Steer {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Rps => "rps",
            Self::Napi => "napi",
        }
    }

    /// Whether the peer takes packets in on its own processors.
    pub(crate) fn is_on(self) -> bool {
        self != Self::No
    }
}

impl fmt::Display for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Steer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::No, Self::Rps, Self::Napi].into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of no, rps, napi"))
    }
}

/// Packets of devices that are made from now on are taken in by softirqs of these processors.
pub(crate) fn by_softirq(host: &Namespace, processors: &[usize]) -> Result<()> {
    let mask = processors.iter().fold(0_u64, |mask, one| mask | 1 << (one % 64));
    host.set_sysctl("net.core.rps_default_mask", &format!("{mask:x}"))
}

/// Lets a host cut what it sends into packets of the link's MTU before its device has them.
pub(crate) fn cut_first(host: &Namespace, device: &str) -> Result<()> {
    set_feature(host, device, ["tso", "off"])
}

fn set_feature(host: &Namespace, device: &str, [feature, value]: [&str; 2]) -> Result<()> {
    let set = host.run("ethtool", &["-K", device, feature, value]);
    set.map(drop).context("--steer napi needs ethtool (Debian package ethtool)")
}

/// A device's name that no other has: the kernel's threads are named after it, for all to see.
pub(crate) fn unique_device() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("ob{:x}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The kernel's threads that take a device's packets in. They end with the device.
#[derive(Debug)]
pub(crate) struct Receivers {
    threads: Vec<u32>,
}

impl Receivers {
    /// Gives a veth device, whose name is [`unique_device`]'s, threads on these processors.
    pub(crate) fn start(lab: &Lab, host: &Namespace, device: &str, processors: &[usize]) -> Result<Self> {
        // With it the device has a poll function, and so something to run on a thread.
        set_feature(host, device, ["gro", "on"])?;
        let system = lab.file(device);
        std::fs::create_dir(&system)?;
        let path = system.to_str().context("the laboratory's path")?;
        // What it shows are the devices of the namespace in which it is mounted.
        host.run("mount", &["-t", "sysfs", "none", path])?;
        let switched = std::fs::write(system.join(format!("class/net/{device}/threaded")), "1");
        host.run("umount", &[path])?;
        switched.with_context(|| format!("this kernel takes packets of {device} in on no threads"))?;
        let threads = threads_named(&format!("napi/{device}-"));
        ensure!(!threads.is_empty(), "the kernel's threads of {device} are not to be seen from here");
        if !processors.is_empty() {
            for thread in &threads {
                cpu::pin_thread(*thread, processors)
                    .context("the kernel's thread cannot be placed (that needs root)")?;
            }
        }
        Ok(Self { threads })
    }

    /// What they have spent so far.
    pub(crate) fn time(&self) -> Result<CpuTime> {
        let times = self.threads.iter().map(|thread| cpu::process(*thread));
        let sum = times.sum::<Result<CpuTime>>().context("the processor time of a kernel's thread")?;
        Ok(CpuTime { user: std::time::Duration::ZERO, system: sum.total() })
    }
}

fn threads_named(beginning: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_one = |id: &u32| {
        let name = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("comm"));
        name.is_ok_and(|name| name.starts_with(beginning))
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}
