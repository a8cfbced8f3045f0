//! What the supervisor tells a worker, and what the worker answers: one message each way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use channel::control::sys::{self as seqpacket, Received};

/// Longest message. Settings are a few lines; a thousand routes still fit.
const MAX_MESSAGE: usize = 128 * 1024;

/// The first and only message to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handover {
    /// The settings, which the supervisor has found to be valid.
    pub settings: Settings,
    /// The supervisor's process number: who to tell to stop the FEP.
    pub supervisor: u32,
    /// When the FEP started, nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// How many workers there were before this one.
    pub restarts: u64,
}

/// What a worker gets besides the message.
#[derive(Debug)]
pub struct Descriptors {
    /// The network device.
    pub device: OwnedFd,
    /// The listening control socket.
    pub listener: OwnedFd,
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// It serves applications.
    Ready,
    /// It cannot, and why.
    Failed(String),
}

/// The two ends of a handover socket.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Handover {
    /// The supervisor's part.
    pub(crate) fn send(
        &self,
        socket: impl AsFd,
        device: BorrowedFd<'_>,
        listener: BorrowedFd<'_>,
    ) -> io::Result<()> {
        seqpacket::send(socket, &serde_json::to_vec(self)?, &[device, listener])
    }

    /// The worker's part: waits for the message.
    pub fn receive(socket: impl AsFd) -> io::Result<(Self, Descriptors)> {
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut buffer = vec![0; MAX_MESSAGE];
        match seqpacket::receive(socket, &mut buffer)? {
            Received::HungUp => Err(wrong("the supervisor hung up")),
            Received::Truncated => Err(wrong("the settings are too long")),
            Received::Message(length, descriptors) => {
                let [device, listener] = <[OwnedFd; 2]>::try_from(descriptors)
                    .map_err(|_| wrong("the handover brings two descriptors"))?;
                let handover = serde_json::from_slice(&buffer[..length])?;
                Ok((handover, Descriptors { device, listener }))
            }
        }
    }
}

impl Answer {
    /// The worker's part.
    pub fn send(&self, socket: impl AsFd) -> io::Result<()> {
        seqpacket::send(socket, &serde_json::to_vec(self)?, &[])
    }
}

/// The supervisor's part: the next answer, or `None` if the worker hung up.
pub(crate) fn receive_answer(socket: impl AsFd) -> io::Result<Option<Answer>> {
    let mut buffer = vec![0; MAX_MESSAGE];
    match seqpacket::receive(socket, &mut buffer)? {
        Received::Message(length, _) => Ok(Some(serde_json::from_slice(&buffer[..length])?)),
        Received::HungUp | Received::Truncated => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_arrives_whole() {
        let (supervisor, worker) = socket_pair().unwrap();
        let sent = Handover {
            settings: Settings { tap: Some("ob0".into()), mtu: Some(9000), ..Settings::default() },
            supervisor: 7,
            started_ns: 8,
            restarts: 9,
        };
        sent.send(&supervisor, supervisor.as_fd(), worker.as_fd()).unwrap();
        let (received, _descriptors) = Handover::receive(&worker).unwrap();
        assert_eq!(received, sent);
        Answer::Failed("no".into()).send(&worker).unwrap();
        assert_eq!(receive_answer(&supervisor).unwrap(), Some(Answer::Failed("no".into())));
    }
}
