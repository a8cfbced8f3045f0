//! How an application comes to its channel: over a control socket, or in the FEP's own process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::channel::{Channel, lock};
use crate::control::sys::{Received, receive, send};
use crate::control::{Answer, MAX_MESSAGE, Network, Request, Token};
use crate::fep::{AppChannel, Bells, WaiterError};
use crate::layout::{Geometry, Layout, MAGIC_F, VERSION, header_f};
use crate::mapping::{ReadMapping, WriteMapping};

/// The FEP is waited for no longer than this before a fork.
const CHILD_LIMIT_SECONDS: i64 = 5;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The FEP does not want to; it says why and what to do.
    #[error("the FEP refuses: {0}")]
    Refused(String),
    /// The FEP's answer makes no sense.
    #[error("the FEP's answer makes no sense ({0}): are both of the same version?")]
    Nonsense(&'static str),
    /// The system refused.
    #[error("cannot open a channel to the FEP: {0}")]
    System(#[from] io::Error),
}

/// How the FEP's half is reached apart from the segments.
#[derive(Debug)]
pub(super) enum Link {
    Control(Mutex<OwnedFd>),
    Local(Arc<Bells>),
}

impl Channel {
    /// Opens a channel over a control socket that was connected for this, in blocking mode; `name` is shown in the
    /// FEP's status.
    pub fn connect(control: OwnedFd, name: &str) -> Result<(Arc<Self>, Network), ConnectError> {
        say_hello(&control, name, None)?;
        Self::welcome(control)
    }

    /// Asks over a control socket that was connected for this for a channel for the process that this one is about to fork: it has all
    /// sockets of this one, too, from when this returns. The channel is the child's to open ([`welcome`](Self::welcome)).
    ///
    /// # Errors
    /// The FEP is gone, or the channel is not to one in another process.
    pub fn announce_child(&self, control: &OwnedFd, name: &str) -> io::Result<()> {
        say_hello(control, name, Some(*self.token()))?;
        // The answer is left for the child; that it is there says that the FEP knows.
        let mut descriptors = [PollFd::new(control, PollFlags::IN)];
        let limit = Timespec { tv_sec: CHILD_LIMIT_SECONDS, tv_nsec: 0 };
        loop {
            match poll(&mut descriptors, Some(&limit)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Opens the channel that was asked for over this control socket.
    pub fn welcome(control: OwnedFd) -> Result<(Arc<Self>, Network), ConnectError> {
        let (answer, descriptors) = receive_answer(&control)?;
        let (geometry, network, token) = match answer {
            Answer::Welcome { geometry, network, token } => (geometry, network, token),
            Answer::Refused(text) => return Err(ConnectError::Refused(text)),
            Answer::Bell { .. } | Answer::Lender => {
                return Err(ConnectError::Nonsense("another answer for HELLO"));
            }
        };
        let [a, f, doorbell] = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|_| ConnectError::Nonsense("a welcome has three descriptors"))?;
        let link = Link::Control(Mutex::new(control));
        Ok((attach(geometry, [a, f, doorbell], link, token)?, network))
    }

    /// The application's half of a channel whose other half is in this process.
    pub(crate) fn local(half: &AppChannel) -> io::Result<Arc<Self>> {
        let offer = half.offer();
        let files = [
            offer.a.try_clone_to_owned()?,
            offer.f.try_clone_to_owned()?,
            offer.doorbell.try_clone_to_owned()?,
        ];
        let link = Link::Local(half.bells().clone());
        attach(offer.geometry, files, link, Token::default()).map_err(|error| match error {
            ConnectError::System(error) => error,
            other => io::Error::other(other),
        })
    }
}

impl Link {
    /// A descriptor in whose place that of a bell can come. Without one what the FEP sends would be lost.
    ///
    /// # Errors
    /// `EMFILE`: there is no place.
    pub(super) fn make_room_for_bell(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Local(_) => Ok(None),
            Self::Control(control) => Ok(Some(fcntl_dupfd_cloexec(&*lock(control), 0)?)),
        }
    }

    /// The reading end of the bell of a slot, in the place of `room`.
    pub(super) fn make_bell(&self, slot: u32, room: Option<OwnedFd>) -> io::Result<OwnedFd> {
        match self {
            Self::Local(bells) => bells.make(slot).map_err(|error| match error {
                WaiterError::System(error) => error,
                other @ WaiterError::Offence(_) => io::Error::other(other),
            }),
            Self::Control(control) => {
                let control = lock(control);
                send(&*control, &Request::NewWaiter { slot }.encode(), &[])?;
                drop(room);
                match receive_answer(&control) {
                    Ok((Answer::Bell { slot: same }, mut descriptors)) if same == slot => {
                        descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
                    }
                    Ok((Answer::Refused(text), _)) => Err(io::Error::other(text)),
                    Ok(_) => Err(io::ErrorKind::InvalidData.into()),
                    Err(ConnectError::System(error)) => Err(error),
                    Err(other) => Err(io::Error::other(other)),
                }
            }
        }
    }

    /// A socket to lend files on.
    pub(super) fn open_lender(&self) -> io::Result<OwnedFd> {
        let Self::Control(control) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        let control = lock(control);
        send(&*control, &Request::Lend.encode(), &[])?;
        match receive_answer(&control) {
            Ok((Answer::Lender, mut descriptors)) => {
                descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
            Ok((Answer::Refused(text), _)) => Err(io::Error::other(text)),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(ConnectError::System(error)) => Err(error),
            Err(other) => Err(io::Error::other(other)),
        }
    }

    /// Says that an inherited socket is of no use here.
    pub(super) fn release(&self, identity: u64) -> io::Result<()> {
        let Self::Control(control) = self else { return Err(io::ErrorKind::Unsupported.into()) };
        send(&*lock(control), &Request::Release { identity }.encode(), &[])
    }

    /// Whether the FEP has closed the control socket.
    pub(super) fn is_hung_up(&self) -> bool {
        let Self::Control(control) = self else { return false };
        let control = lock(control);
        let mut descriptors = [PollFd::new(&*control, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut descriptors, Some(&now)), Ok(1))
    }
}

fn say_hello(control: &OwnedFd, name: &str, parent: Option<Token>) -> io::Result<()> {
    let name = name.to_owned();
    send(control, &Request::Hello { version: VERSION, pid: std::process::id(), name, parent }.encode(), &[])
}

fn receive_answer(control: &OwnedFd) -> Result<(Answer, Vec<OwnedFd>), ConnectError> {
    let mut buffer = vec![0; MAX_MESSAGE];
    match receive(control, &mut buffer)? {
        Received::Message(length, descriptors) => {
            let answer = Answer::decode(&buffer[..length]).ok_or(ConnectError::Nonsense("not a message"))?;
            Ok((answer, descriptors))
        }
        Received::HungUp => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        Received::Truncated => Err(ConnectError::Nonsense("too long")),
    }
}

/// Maps the segments after checking that they are as large as the geometry says and cannot shrink under us.
fn attach(
    geometry: Geometry,
    [a, f, doorbell]: [OwnedFd; 3],
    link: Link,
    token: Token,
) -> Result<Arc<Channel>, ConnectError> {
    let layout = Layout::new(geometry).ok_or(ConnectError::Nonsense("geometry"))?;
    for (file, len) in [(&a, layout.a_len), (&f, layout.f_len)] {
        if fstat(file).map_err(io::Error::from)?.st_size != len as i64 {
            return Err(ConnectError::Nonsense("a segment's size"));
        }
        let seals = fcntl_get_seals(file).map_err(io::Error::from)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(ConnectError::Nonsense("a segment that is not sealed"));
        }
    }
    let a_map = WriteMapping::new(a.as_fd(), layout.a_len)?;
    let f_map = ReadMapping::new(f.as_fd(), layout.f_len)?;
    let order = core::sync::atomic::Ordering::Acquire;
    if f_map.load64(header_f::MAGIC, order) != MAGIC_F || f_map.load32(header_f::VERSION, order) != VERSION {
        return Err(ConnectError::Nonsense("a segment's header"));
    }
    Ok(Channel::new(a_map, f_map, layout, a, doorbell, (link, token)))
}
