//! Programs of a laboratory.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use rustix::thread::CpuSet;

use crate::Namespace;
use crate::cpu::Group;
use crate::sys::{self, Beginning};

/// A program about to be started.
#[derive(Debug)]
pub struct Spawn {
    command: Command,
    network: Option<Namespace>,
    processors: Vec<usize>,
    groups: Vec<OwnedFd>,
}

impl Spawn {
    /// Takes a command; its standard input becomes `/dev/null`.
    pub fn new(command: Command) -> Self {
        Self { command, network: None, processors: Vec::new(), groups: Vec::new() }
    }

    /// Starts it inside a network namespace.
    pub fn inside(mut self, namespace: &Namespace) -> Self {
        self.network = Some(namespace.clone());
        self
    }

    /// Lets it run on these processors only (numbered from 0); none given: on all.
    pub fn on_processors(&mut self, processors: &[usize]) -> &mut Self {
        self.processors = processors.to_vec();
        self
    }

    /// Puts it and its children into a control group.
    pub fn in_group(&mut self, group: &Group) -> Result<&mut Self> {
        self.groups = group.entrances()?;
        Ok(self)
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, arguments: impl IntoIterator<Item = S>) -> &mut Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end and gives its output.
    pub fn output(self) -> Result<Output> {
        let mut command = self.ready()?;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().with_context(|| format!("cannot run {:?}", command.get_program()))
    }

    /// The command with everything in it that happens before the program begins.
    fn ready(self) -> Result<Command> {
        let mut command = self.command;
        let network = match &self.network {
            Some(namespace) => Some(namespace.descriptor().try_clone_to_owned()?),
            None => None,
        };
        let processors = (!self.processors.is_empty()).then(|| {
            let mut set = CpuSet::new();
            for processor in &self.processors {
                set.set(*processor);
            }
            set
        });
        command.stdin(Stdio::null());
        let beginning = Beginning { network, groups: self.groups, processors, enter: None };
        sys::begin(&mut command, beginning);
        Ok(command)
    }
}

/// A running program. It is killed, with its process group, when this is dropped, when the thread that started it
/// ends, and when this process ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    output: [PathBuf; 2],
}

impl Process {
    /// Starts a program; its output goes to files `NAME.out` and `NAME.err` of `directory`.
    pub fn start(directory: &Path, name: &str, spawn: Spawn) -> Result<Self> {
        let output = ["out", "err"].map(|end| directory.join(format!("{name}.{end}")));
        let mut command = spawn.ready()?;
        command.stdout(File::create(&output[0])?).stderr(File::create(&output[1])?);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, status: None, output })
    }

    /// The name that it was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_none())
    }

    /// What it has written so far, to standard output and then to standard error.
    pub fn text(&self) -> String {
        self.output.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }

    /// What it has written to standard output so far.
    pub fn stdout(&self) -> Result<String> {
        std::fs::read_to_string(&self.output[0]).with_context(|| format!("the output of {}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.wait_while(patience, || Ok(()))
    }

    /// Waits for its end, and calls `meanwhile` ten times a second; gives up when that gives an error.
    pub fn wait_while(
        &mut self,
        patience: Duration,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<ExitStatus> {
        const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let began = Instant::now();
        while self.is_running()? {
            if began.elapsed() > patience {
                bail!("{} has not ended after {} s:\n{}", self.name, patience.as_secs(), self.text());
            }
            // The descriptor becomes readable when the process ends: the end is noticed when it happens.
            let descriptor = pidfd_open(self.pid(), PidfdFlags::empty())
                .with_context(|| format!("cannot watch {}", self.name))?;
            match rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&TURN)) {
                Ok(0) | Err(Errno::INTR) => meanwhile()?,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.status.with_context(|| format!("{} has no status", self.name))
    }

    /// Waits for its end; an error with its output unless it exits with 0.
    pub fn wait_for_success(&mut self, patience: Duration) -> Result<()> {
        self.wait_for_success_while(patience, || Ok(()))
    }

    /// The same, and calls `meanwhile` ten times a second.
    pub fn wait_for_success_while(
        &mut self,
        patience: Duration,
        meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let status = self.wait_while(patience, meanwhile)?;
        if !status.success() {
            bail!("{} ended with {status}:\n{}", self.name, self.text());
        }
        Ok(())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        rustix::process::kill_process(self.pid(), signal)
            .with_context(|| format!("cannot signal {}", self.name))
    }

    /// Asks it to end (SIGTERM) and waits; kills it when it does not.
    pub fn stop(mut self, patience: Duration) -> Result<ExitStatus> {
        if self.is_running()? {
            self.signal(Signal::TERM)?;
        }
        match self.wait(patience) {
            Ok(status) => Ok(status),
            Err(_) => {
                self.kill();
                Ok(self.status.unwrap_or_else(|| ExitStatus::from_raw(libc::SIGKILL)))
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn kill(&mut self) {
        // The group first: it bears the leader's id, which nobody else can get before the leader is waited for.
        if self.status.is_none() {
            let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
