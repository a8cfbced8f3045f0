//! What processes, groups of processes and the machine spend of its processors.
//!
//! The scheduler measures how long a task runs to the nanosecond, interrupts and softirqs that it carries included
//! (this kernel does not account them apart unless `CONFIG_IRQ_TIME_ACCOUNTING` is set). Totals here come from that
//! clock. How a total splits into user and system time is the kernel's estimate: it samples at its tick (250 or 1000
//! times a second), so the split of a short run is rough while its sum is not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::sys;

/// Processor time, split into user and system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in the programs' own code.
    pub user: Duration,
    /// Time in the kernel on their behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// What was spent since an earlier reading. A part that seems to shrink (the kernel's estimate of the split
    /// moves) counts as nothing, and the other part takes the difference, so that the total stays exact.
    pub fn since(&self, earlier: &Self) -> Self {
        let total = self.total().saturating_sub(earlier.total());
        let user = self.user.saturating_sub(earlier.user).min(total);
        Self { user, system: total - user }
    }

    /// A precise total, split as a rough estimate says.
    fn split(total: Duration, rough: Self) -> Self {
        let sum = rough.total().as_secs_f64();
        let share = if sum > 0.0 { rough.user.as_secs_f64() / sum } else { 1.0 };
        let user = total.mul_f64(share.clamp(0.0, 1.0)).min(total);
        Self { user, system: total - user }
    }
}

impl std::iter::Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), |sum, time| sum + time)
    }
}

impl std::ops::Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

/// What a process has spent so far: all its threads, those that have ended included, and its children that have ended.
pub fn process(id: u32) -> Result<CpuTime> {
    let total = sys::process_clock(id).with_context(|| format!("the processor clock of process {id}"))?;
    let stat = Stat::of(id)?;
    Ok(CpuTime::split(total, stat.own) + stat.ended_children)
}

/// What the programs that this process has started and waited for have spent.
pub fn ended_children() -> Result<CpuTime> {
    let [user, system] = sys::usage_of_ended_children().context("the usage of ended children")?;
    Ok(CpuTime { user, system })
}

/// What a process and all its descendants have spent so far, those that have ended and were waited for included.
///
/// Not counted are those that nobody of them waited for: whose parent ended before them, or ignores `SIGCHLD`. Only a
/// [`Group`] counts these too. Of the ended ones user and system time are each known in steps of 10 ms, for all of them together.
pub fn tree(root: u32) -> Result<CpuTime> {
    /// A program whose children end more often than it can be looked at is told as it was seen last.
    const ATTEMPTS: usize = 20;
    let family = || Ok::<_, anyhow::Error>((children(root), Stat::of(root)?.ended_children));
    let mut before = family()?;
    let mut attempts = 0;
    loop {
        let mut sum = process(root)?;
        for child in &before.0 {
            sum = sum + tree(*child).unwrap_or_default();
        }
        // A child that ended meanwhile is in neither sum, or in both.
        let after = family()?;
        attempts += 1;
        if before == after || attempts == ATTEMPTS {
            return Ok(sum);
        }
        before = after;
    }
}

/// The direct children of a process that it has not waited for yet.
pub fn children(id: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The part of `/proc/PID/stat` that is about time; in ticks of 10 ms.
struct Stat {
    own: CpuTime,
    ended_children: CpuTime,
}

impl Stat {
    fn of(id: u32) -> Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat"))
            .with_context(|| format!("process {id} is not there"))?;
        // The name, in parentheses, may hold anything; utime is the 12th field after it.
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: Vec<u64> =
            after_name.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
        let [user, system, child_user, child_system] = ticks[..] else {
            anyhow::bail!("/proc/{id}/stat has another form: {text}");
        };
        Ok(Self {
            own: CpuTime { user: from_ticks(user), system: from_ticks(system) },
            ended_children: CpuTime { user: from_ticks(child_user), system: from_ticks(child_system) },
        })
    }
}

/// The unit of `/proc`'s times on every Linux that Rust runs on: USER_HZ is 100.
fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

/// A control group (cgroup v2): whatever is started in it is counted and can be killed together, children and
/// children's children included, also those that have ended.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    /// A second group of the same programs, of cgroup v1, where the processor's controller is there.
    limiting: Option<PathBuf>,
}

/// How often a limited group's time is given out anew: short, so that no wait of it is long.
const LIMIT_PERIOD_US: u64 = 10_000;

impl Group {
    /// Makes a group, where this system lets us. `None`: count with [`tree`] instead.
    pub fn new(name: &str) -> Option<Self> {
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .map(PathBuf::from)
            .find(|root| root.join("cgroup.controllers").exists())?;
        remove_stale(&root);
        let directory = root.join(format!("{}{}-{name}", sys::PREFIX, std::process::id()));
        std::fs::create_dir(&directory).ok()?;
        let group = Self { directory, limiting: None };
        // Some containers mount the hierarchy but let nobody join a group of it.
        (group.entrances().is_ok() && group.time().is_ok()).then_some(group)
    }

    /// What the group has spent so far.
    pub fn time(&self) -> Result<CpuTime> {
        let path = self.directory.join("cpu.stat");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
                .map(Duration::from_micros)
                .with_context(|| format!("{} has no {key}", path.display()))
        };
        Ok(CpuTime::split(
            value("usage_usec ")?,
            CpuTime { user: value("user_usec ")?, system: value("system_usec ")? },
        ))
    }

    /// Lets the group use at most this share of one processor: `cpu.max` of cgroup v2, or `cpu.cfs_quota_us` of cgroup v1
    /// where the processor's controller is there. To be called before anything is started in the group.
    pub fn limit(&mut self, share: f64) -> Result<()> {
        // The kernel refuses less than a millisecond in a period.
        let quota = ((share * LIMIT_PERIOD_US as f64) as u64).max(1_000);
        let root = self.directory.parent().context("a group lies in a folder")?;
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|one| one == "cpu") {
            std::fs::write(root.join("cgroup.subtree_control"), "+cpu").context("cgroup.subtree_control")?;
            let path = self.directory.join("cpu.max");
            return std::fs::write(&path, format!("{quota} {LIMIT_PERIOD_US}"))
                .with_context(|| path.display().to_string());
        }
        let root = Path::new("/sys/fs/cgroup/cpu");
        remove_stale(root);
        let name = self.directory.file_name().context("a group has a name")?;
        let directory = root.join(name);
        std::fs::create_dir(&directory).with_context(|| {
            format!("{}: neither cgroup v2 nor v1 has a processor controller for us", directory.display())
        })?;
        self.limiting = Some(directory.clone());
        for (file, value) in [("cpu.cfs_period_us", LIMIT_PERIOD_US), ("cpu.cfs_quota_us", quota)] {
            let path = directory.join(file);
            std::fs::write(&path, value.to_string()).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Kills everything in the group.
    pub fn kill(&self) {
        let _ = std::fs::write(self.directory.join("cgroup.kill"), "1");
    }

    /// The files that a process writes `0` into to join.
    pub(crate) fn entrances(&self) -> Result<Vec<OwnedFd>> {
        let open = |directory: &PathBuf| {
            let path = directory.join("cgroup.procs");
            let file = File::options().write(true).open(&path);
            Ok(file.with_context(|| path.display().to_string())?.into())
        };
        [Some(&self.directory), self.limiting.as_ref()].into_iter().flatten().map(open).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        // The group is empty when the killed processes have been waited for, which may take a moment.
        let began = Instant::now();
        for directory in [Some(&self.directory), self.limiting.as_ref()].into_iter().flatten() {
            while std::fs::remove_dir(directory).is_err() && began.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Removes groups whose makers were killed before they could.
fn remove_stale(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for entry in entries.flatten().filter(|entry| sys::is_stale(&entry.file_name().to_string_lossy())) {
        let _ = std::fs::write(entry.path().join("cgroup.kill"), "1");
        let _ = std::fs::remove_dir(entry.path());
    }
}

/// What the machine's processors have done since it started, summed over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// Time not idle (softirqs and interrupts included; stolen time excluded).
    pub busy: Duration,
    /// Time in softirqs, as sampled at the kernel's tick.
    pub softirq: Duration,
    /// Time in which the hypervisor ran something else.
    pub stolen: Duration,
}

impl MachineTime {
    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

/// Reads [`MachineTime`]; steps of 10 ms a processor.
pub fn machine() -> io::Result<MachineTime> {
    let text = std::fs::read_to_string("/proc/stat")?;
    machine_time(text.lines().next().unwrap_or_default())
}

/// The same of one processor.
pub fn processor(number: usize) -> io::Result<MachineTime> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{number} ");
    machine_time(text.lines().find(|line| line.starts_with(&name)).unwrap_or_default())
}

fn machine_time(line: &str) -> io::Result<MachineTime> {
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has another form"));
    };
    Ok(MachineTime {
        busy: from_ticks(user + nice + system + irq + softirq),
        softirq: from_ticks(softirq),
        stolen: from_ticks(steal),
    })
}

/// What the kernel's softirq threads have spent so far, on whoever's behalf.
pub fn softirq_threads() -> Duration {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Duration::ZERO };
    entries
        .flatten()
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("comm"))
                .is_ok_and(|name| name.starts_with("ksoftirqd/"))
        })
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

/// How many processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets the calling thread (and threads and programs that it starts) run on these processors only.
pub fn pin(processors: &[usize]) -> io::Result<()> {
    rustix::thread::sched_setaffinity(None, &set_of(processors))?;
    Ok(())
}

/// Lets another thread, which may be one of the kernel's, run on these processors only.
pub fn pin_thread(id: u32, processors: &[usize]) -> io::Result<()> {
    let thread = rustix::thread::Pid::from_raw(id.cast_signed());
    let thread = thread.ok_or(io::ErrorKind::InvalidInput)?;
    rustix::thread::sched_setaffinity(Some(thread), &set_of(processors))?;
    Ok(())
}

fn set_of(processors: &[usize]) -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    for processor in processors {
        set.set(*processor);
    }
    set
}
