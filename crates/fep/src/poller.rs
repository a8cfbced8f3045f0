//! What the worker sleeps on: one epoll instance over the device, the doorbells, the control sockets and the rest.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use base::Duration;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Events taken from the kernel at a time; what is left is taken at the next look.
const EVENTS: usize = 64;

/// Why the worker woke up, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The network device can be read, or written if that was waited for.
    Device,
    /// The thread that started this worker wants something.
    Caller,
    /// A signal arrived.
    Signal,
    /// The supervisor hung up.
    Supervisor,
    /// Somebody connects to the control socket.
    Listener,
    /// A control connection has a message or hung up.
    Control(u32),
    /// An application rang.
    Doorbell(u32),
    /// A clerk has read something.
    Clerk,
}

impl Source {
    fn to_data(self) -> EventData {
        let (kind, index) = match self {
            Self::Device => (0, 0),
            Self::Caller => (1, 0),
            Self::Signal => (2, 0),
            Self::Supervisor => (3, 0),
            Self::Listener => (4, 0),
            Self::Control(index) => (5, index),
            Self::Doorbell(index) => (6, index),
            Self::Clerk => (7, 0),
        };
        EventData::new_u64(kind << 32 | u64::from(index))
    }

    fn from_data(data: EventData) -> Option<Self> {
        let index = data.u64() as u32;
        Some(match data.u64() >> 32 {
            0 => Self::Device,
            1 => Self::Caller,
            2 => Self::Signal,
            3 => Self::Supervisor,
            4 => Self::Listener,
            5 => Self::Control(index),
            6 => Self::Doorbell(index),
            7 => Self::Clerk,
            _ => return None,
        })
    }
}

/// The epoll instance, level-triggered but for doorbells.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    waits_for_writable: bool,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, waits_for_writable: false })
    }

    pub(crate) fn add(&self, descriptor: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, source.to_data(), EventFlags::IN)?)
    }

    /// Adds a descriptor that nobody reads: it tells of each new ring once.
    pub(crate) fn add_edge(&self, descriptor: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, source.to_data(), EventFlags::IN | EventFlags::ET)?)
    }

    /// Forgets a descriptor. To be called before it is closed: another process may hold it open too.
    pub(crate) fn remove(&self, descriptor: impl AsFd) {
        // It may never have been added; then there is nothing to forget.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Whether to wake up, too, when the device can be written.
    pub(crate) fn want_writable(&mut self, device: impl AsFd, wanted: bool) -> io::Result<()> {
        if self.waits_for_writable == wanted {
            return Ok(());
        }
        self.waits_for_writable = wanted;
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, device, Source::Device.to_data(), flags)?)
    }

    /// Waits for at most `timeout` (for ever without one) and appends what happened to `sources`.
    pub(crate) fn wait(&self, timeout: Option<Duration>, sources: &mut Vec<Source>) -> io::Result<()> {
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as i64,
        });
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
        match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => {
                sources.extend(events.iter().filter_map(|event| Source::from_data(event.data)));
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn what_rings_is_named() {
        let mut poller = Poller::new().unwrap();
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        poller.add(&bell, Source::Doorbell(7)).unwrap();
        let mut sources = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut sources).unwrap();
        assert!(sources.is_empty());
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        poller.wait(None, &mut sources).unwrap();
        assert_eq!(sources, [Source::Doorbell(7)]);
        poller.remove(&bell);
        poller.add(&bell, Source::Device).unwrap();
        poller.want_writable(&bell, true).unwrap();
        sources.clear();
        poller.wait(None, &mut sources).unwrap();
        assert_eq!(sources, [Source::Device]);
    }
}
