//! The worker process: takes over what its supervisor hands it, and runs a worker.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::Context;
use device::Device;
use device::capture::Capture;
use device::coalesce::Coalesce;
use device::tap::Tap;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::clock;
use crate::config::Config;
use crate::control::{About, Server};
use crate::device_options;
use crate::supervisor::handover::{Answer, Descriptors, Handover};
use crate::worker::{Stop, Worker};

/// A worker ready to run, and what stops it.
struct Prepared {
    worker: Worker<Box<dyn Device>>,
    stop: Stop,
}

/// Runs a worker by the orders that come over standard input, until told to stop.
///
/// # Errors
/// There is no supervisor at the other end, or the worker cannot start or go on. A worker that cannot start has told the
/// supervisor why.
pub fn serve_supervisor() -> anyhow::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let (handover, descriptors) =
        Handover::receive(&socket).context("there is no order from a supervisor")?;
    let mut prepared = match prepare(&handover, descriptors, &socket) {
        Ok(prepared) => prepared,
        Err(error) => {
            // The supervisor ends this process when it has read the answer.
            Answer::Failed(format!("{error:#}")).send(&socket)?;
            return Err(error);
        }
    };
    Answer::Ready.send(&socket)?;
    prepared.worker.run(&prepared.stop).context("the worker cannot go on")
}

/// Lets this process have as many descriptors as it may: the usual soft limit of 1024 is for programs that use select(2), and
/// every application takes some of a FEP's.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be had, what is one too many is told so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn prepare(handover: &Handover, descriptors: Descriptors, socket: &OwnedFd) -> anyhow::Result<Prepared> {
    raise_descriptor_limit();
    let config = Config::new(&handover.settings)?;
    let device = open_device(&config, descriptors.device)?;
    let mut worker = Worker::new(clock::now(), device, config.network.clone(), config.worker.clone())?;
    let about = About {
        name: config.name.clone(),
        supervisor: handover.supervisor,
        started_ns: handover.started_ns,
        restarts: handover.restarts,
    };
    worker.serve(Server::new(descriptors.listener, about))?;
    let stop = Stop {
        signal: Some(signals()?),
        supervisor: Some(socket.try_clone().context("standard input")?),
        caller: None,
    };
    Ok(Prepared { worker, stop })
}

/// The device beneath, a capture of what passes it if one is wanted, and where the device does not coalesce what it
/// receives, software that does.
fn open_device(config: &Config, descriptor: OwnedFd) -> anyhow::Result<Box<dyn Device>> {
    let tap = Tap::from_descriptor(descriptor, &device_options(config))?;
    let Some(path) = &config.capture else { return Ok(with_coalescing(tap)) };
    let file = File::create(path).with_context(|| format!("cannot write the capture {}", path.display()))?;
    let capture = Capture::new(tap, BufWriter::new(file), &config.tap, unix_nanos)
        .with_context(|| format!("cannot write the capture {}", path.display()))?;
    Ok(with_coalescing(capture))
}

fn with_coalescing(device: impl Device + 'static) -> Box<dyn Device> {
    if device.capabilities().checksum_rx { Box::new(device) } else { Box::new(Coalesce::new(device)) }
}

/// Readable after SIGTERM or SIGINT.
fn signals() -> anyhow::Result<OwnedFd> {
    let (read, write) = UnixStream::pair().context("a socket for signals")?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("cannot catch signals")?;
    }
    Ok(OwnedFd::from(read))
}

/// Nanoseconds since 1970, for the stamps of captures.
fn unix_nanos() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
