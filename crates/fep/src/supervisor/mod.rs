//! The process that `outboard up` is: it holds what must outlive the worker and starts the worker again when it dies.
//!
//! The supervisor opens the TAP interface and the control socket, so that applications that connect while there is no
//! worker wait instead of failing. A worker is a fresh process image of the same executable whose standard input is
//! the [`handover`] socket; it gets its settings and both descriptors in one message and answers when it is ready.
//! Losing the supervisor hangs that socket up, which the worker takes as an order to end.
//!
//! SIGTERM and SIGINT go on to the worker, which closes its connections in order; a second one ends it at once.

pub mod handover;

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use device::tap::{Tap, TapError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError, Settings};
use crate::control::{ListenError, open_listener};
use crate::device_options;
use handover::{Answer, Handover};

/// The pause before the first restart of a worker; it doubles with each crash in a row.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest pause before a restart.
const BACKOFF_MOST: Duration = Duration::from_secs(5);
/// A worker that lived this long was well: the next crash counts as the first again.
const WELL_AFTER: Duration = Duration::from_secs(10);
/// How long a worker may take to close its connections before it is killed: longer than its own drain limit.
const STOP_LIMIT: Duration = Duration::from_secs(8);
const _: () = assert!(STOP_LIMIT.as_millis() > crate::DRAIN_LIMIT.as_millis() as u128);

/// Why a FEP did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The interface cannot be opened.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The control socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The first worker could not start: a restart would not help.
    #[error("the worker did not start: {0}")]
    Worker(String),
    /// The operating system refused something else.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// What happened while the supervisor waited.
enum Happened {
    Signal(i32),
    Answer(Answer),
    HungUp,
    TimedOut,
}

/// Runs a FEP until it is told to stop. `command` makes the command line of a worker; `announce` is called once, when
/// the FEP answers its control socket.
pub fn supervise(
    settings: &Settings,
    command: impl Fn() -> io::Result<Command>,
    announce: impl FnOnce(&Config),
) -> Result<(), SupervisorError> {
    let config = Config::new(settings)?;
    let signals = Signals::register()?;
    let listener = open_listener(&config.socket, config.socket_mode)?;
    let socket = SocketFile(config.socket.clone());
    let tap = Tap::open(&device_options(&config))?;
    let mut supervisor = Supervisor {
        settings,
        signals,
        listener,
        tap,
        started_ns: crate::clock::now().as_nanos(),
        restarts: 0,
        stopping: false,
    };
    let outcome = supervisor.run(command, || announce(&config));
    drop(socket);
    outcome
}

/// The control socket's file, removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by hand; then there is nothing to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Supervisor<'a> {
    settings: &'a Settings,
    signals: Signals,
    listener: OwnedFd,
    tap: Tap,
    started_ns: u64,
    restarts: u64,
    stopping: bool,
}

impl Supervisor<'_> {
    fn run(
        &mut self,
        command: impl Fn() -> io::Result<Command>,
        announce: impl FnOnce(),
    ) -> Result<(), SupervisorError> {
        let mut announce = Some(announce);
        let mut backoff = BACKOFF_FIRST;
        loop {
            let started = Instant::now();
            let mut worker = self.start_worker(&command)?;
            let status = self.watch(&mut worker, &mut announce)?;
            if self.stopping || status.success() {
                info!("stopped");
                return Ok(());
            }
            error!("the worker ended: {status}; its connections are lost");
            if announce.is_some() {
                return Err(SupervisorError::Worker(status.to_string()));
            }
            if started.elapsed() >= WELL_AFTER {
                backoff = BACKOFF_FIRST;
            }
            if self.pause(backoff)? {
                info!("stopped");
                return Ok(());
            }
            backoff = (backoff * 2).min(BACKOFF_MOST);
            self.restarts += 1;
        }
    }

    fn start_worker(&self, command: &impl Fn() -> io::Result<Command>) -> Result<Worker, SupervisorError> {
        let failed = |error| SupervisorError::System("cannot start the worker", error);
        let (ours, theirs) = handover::socket_pair().map_err(failed)?;
        let child = command()
            .and_then(|mut command| command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn())
            .map_err(failed)?;
        let worker = Worker { child, socket: ours };
        let message = Handover {
            settings: self.settings.clone(),
            supervisor: std::process::id(),
            started_ns: self.started_ns,
            restarts: self.restarts,
        };
        let device = self.tap.try_clone_descriptor().map_err(failed)?;
        // A worker that is dead already is noticed by its exit status.
        if let Err(error) = message.send(&worker.socket, device.as_fd(), self.listener.as_fd()) {
            warn!("cannot hand over to the worker: {error}");
        }
        Ok(worker)
    }

    /// Watches a worker until it has ended.
    fn watch(
        &mut self,
        worker: &mut Worker,
        announce: &mut Option<impl FnOnce()>,
    ) -> Result<ExitStatus, SupervisorError> {
        let mut deadline = None;
        let mut listening = true;
        loop {
            if let Some(status) = worker.ended()? {
                return Ok(status);
            }
            let socket = listening.then_some(&worker.socket);
            match self.signals.wait(socket, deadline)? {
                Happened::Signal(SIGCHLD) => {}
                Happened::Signal(_) if self.stopping => worker.signal(Signal::KILL),
                Happened::Signal(_) => {
                    self.stopping = true;
                    deadline = Some(Instant::now() + STOP_LIMIT);
                    worker.signal(Signal::TERM);
                }
                Happened::Answer(Answer::Ready) => {
                    if let Some(announce) = announce.take() {
                        announce();
                    }
                }
                Happened::Answer(Answer::Failed(why)) => {
                    worker.signal(Signal::KILL);
                    worker.child.wait().map_err(|error| SupervisorError::System("wait", error))?;
                    return Err(SupervisorError::Worker(why));
                }
                Happened::HungUp => listening = false,
                Happened::TimedOut => {
                    warn!("the worker takes too long to stop: killed");
                    deadline = None;
                    worker.signal(Signal::KILL);
                }
            }
        }
    }

    /// Waits out a pause; true if told to stop meanwhile.
    fn pause(&mut self, pause: Duration) -> Result<bool, SupervisorError> {
        let end = Instant::now() + pause;
        loop {
            match self.signals.wait(None, Some(end))? {
                Happened::Signal(SIGCHLD) | Happened::Answer(_) | Happened::HungUp => {}
                Happened::Signal(_) => return Ok(true),
                Happened::TimedOut => return Ok(false),
            }
        }
    }
}

/// A running worker. It never outlives its supervisor's interest: dropped early, it is killed and reaped.
struct Worker {
    child: Child,
    socket: OwnedFd,
}

impl Worker {
    fn ended(&mut self) -> Result<Option<ExitStatus>, SupervisorError> {
        self.child.try_wait().map_err(|error| SupervisorError::System("cannot wait for the worker", error))
    }

    fn signal(&self, signal: Signal) {
        // The child is not reaped yet, so that the number is still its own.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Signals as bytes in sockets, one for each, so that they can be waited for together with the worker.
struct Signals {
    pipes: [(i32, UnixStream); 3],
}

impl Signals {
    fn register() -> Result<Self, SupervisorError> {
        let one = |signal| -> io::Result<_> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, write)?;
            Ok((signal, read))
        };
        let all = || -> io::Result<_> { Ok([one(SIGTERM)?, one(SIGINT)?, one(SIGCHLD)?]) };
        Ok(Self { pipes: all().map_err(|error| SupervisorError::System("cannot catch signals", error))? })
    }

    /// Waits for a signal, for a message of the worker, or for the deadline.
    fn wait(
        &mut self,
        worker: Option<&OwnedFd>,
        deadline: Option<Instant>,
    ) -> Result<Happened, SupervisorError> {
        let timeout = deadline.map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        {
            let mut interests: Vec<PollFd<'_>> =
                self.pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
            interests.extend(worker.map(|socket| PollFd::new(socket, PollFlags::IN)));
            match poll(&mut interests, timeout.as_ref()) {
                Ok(0) => return Ok(Happened::TimedOut),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(SupervisorError::System("poll", errno.into())),
            }
        }
        for (signal, pipe) in &mut self.pipes {
            let mut byte = [0; 1];
            if matches!(pipe.read(&mut byte), Ok(1)) {
                return Ok(Happened::Signal(*signal));
            }
        }
        match worker {
            Some(socket) => handover::receive_answer(socket)
                .map(|answer| answer.map_or(Happened::HungUp, Happened::Answer))
                .map_err(|error| SupervisorError::System("cannot hear the worker", error)),
            None => Ok(Happened::TimedOut),
        }
    }
}
