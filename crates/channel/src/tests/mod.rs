//! Both halves in one process over real memory files.

mod budget;
mod control;
mod datagrams;
mod events;
mod fills;
mod hostile;
mod segments;
mod streams;
mod urgent;
mod wakeups;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::app::Channel;
use crate::fep::{AppChannel, Limits, StreamRings};
use crate::{Command, Offence};

pub(super) const LIMITS: Limits =
    Limits { sockets: 64, waiters: 8, send_bytes: 64 << 20, receive_bytes: 64 << 20 };

/// Both halves, and the FEP's sockets as a worker would keep them.
pub(super) struct World {
    pub(super) fep: AppChannel,
    pub(super) app: Arc<Channel>,
    pub(super) streams: BTreeMap<u32, StreamRings>,
}

impl World {
    pub(super) fn new() -> Self {
        let (fep, app) = crate::pair(&LIMITS).unwrap();
        Self { fep, app, streams: BTreeMap::new() }
    }

    /// A stream socket that both sides know.
    pub(super) fn open(&mut self) -> u32 {
        let socket = self.app.new_socket().unwrap();
        self.app.post(&Command::OpenTcp { socket, sequence: 0 }).unwrap();
        self.work().unwrap();
        socket
    }

    pub(super) fn stream(&mut self, socket: u32) -> &mut StreamRings {
        self.streams.get_mut(&socket).unwrap()
    }

    /// Takes all commands, as far as they concern buffers; the rest is returned.
    pub(super) fn work(&mut self) -> Result<Vec<Command>, Offence> {
        let mut rest = Vec::new();
        while let Some(command) = self.fep.poll_command()? {
            match command {
                Command::OpenTcp { socket, .. } => {
                    self.fep.check_own(socket)?;
                    let mut rings = self.fep.owner().stream();
                    rings.assign(socket);
                    if self.streams.insert(socket, rings).is_some() {
                        return Err(Offence::AlreadyOpen);
                    }
                }
                Command::AttachSend { socket, location } => self.known(socket)?.attach_send(location)?,
                Command::Send { socket, queued_to } => self.known(socket)?.queue(queued_to)?,
                Command::Consumed { socket } => {
                    self.known(socket)?.poll_consumed()?;
                }
                Command::Close { socket } => self.known(socket)?.discard_receive(),
                other => rest.push(other),
            }
        }
        Ok(rest)
    }

    /// What a worker does when the stack has let go of a socket.
    pub(super) fn release(&mut self, socket: u32) {
        self.streams.remove(&socket);
        self.fep.release_socket(socket);
    }

    fn known(&mut self, socket: u32) -> Result<&mut StreamRings, Offence> {
        self.streams.get_mut(&socket).ok_or(Offence::NotOpen)
    }
}

/// The byte at a stream offset in every stream of these tests.
pub(super) fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub(super) fn bytes(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|index| byte(offset + index)).collect()
}
