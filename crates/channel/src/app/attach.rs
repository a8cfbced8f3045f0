//! How an application comes to its channel: over a control socket, or in the FEP's own process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::fcntl_dupfd_cloexec;

use super::channel::{Channel, lock};
use crate::control::sys::{Received, receive, send};
use crate::control::{Answer, MAX_MESSAGE, Network, Request};
use crate::fep::{AppChannel, Bells, WaiterError};
use crate::layout::{Geometry, Layout, MAGIC_F, VERSION, header_f};
use crate::mapping::{ReadMapping, WriteMapping};

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
        let hello = Request::Hello { version: VERSION, pid: std::process::id(), name: name.to_owned() };
        send(&control, &hello.encode(), &[])?;
        let (answer, descriptors) = receive_answer(&control)?;
        let (geometry, network) = match answer {
            Answer::Welcome { geometry, network } => (geometry, network),
            Answer::Refused(text) => return Err(ConnectError::Refused(text)),
            Answer::Bell { .. } | Answer::Lender => {
                return Err(ConnectError::Nonsense("another answer for HELLO"));
            }
        };
        let [a, f, doorbell] = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|_| ConnectError::Nonsense("a welcome has three descriptors"))?;
        let channel = attach(geometry, a, f, doorbell, Link::Control(Mutex::new(control)))?;
        Ok((channel, network))
    }

    /// The application's half of a channel whose other half is in this process.
    pub(crate) fn local(half: &AppChannel) -> io::Result<Arc<Self>> {
        let offer = half.offer();
        let [a, f, doorbell] = [
            offer.a.try_clone_to_owned()?,
            offer.f.try_clone_to_owned()?,
            offer.doorbell.try_clone_to_owned()?,
        ];
        attach(offer.geometry, a, f, doorbell, Link::Local(half.bells().clone())).map_err(|error| match error
        {
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

    /// Whether the FEP has closed the control socket.
    pub(super) fn is_hung_up(&self) -> bool {
        let Self::Control(control) = self else { return false };
        let control = lock(control);
        let mut descriptors = [PollFd::new(&*control, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut descriptors, Some(&now)), Ok(1))
    }
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
    a: OwnedFd,
    f: OwnedFd,
    doorbell: OwnedFd,
    link: Link,
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
    Ok(Channel::new(a_map, f_map, layout, a, doorbell, link))
}
