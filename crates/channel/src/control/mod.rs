//! The messages by which an application gets its channel, on a Unix SEQPACKET socket.
//!
//! HELLO is answered by WELCOME with three descriptors (segment A, segment F, the FEP's doorbell), NEW_WAITER by BELL with
//! one, LEND by LENDER with one; or any by REFUSED with a text that says what to do. A message starts with eight letters
//! that name it, so that these live beside a control socket's other questions: [`Request::decode`] leaves alone what is
//! none of them. The socket stays open as long as the channel; its end is the channel's end.

mod codec;
pub mod sys;

use core::net::IpAddr;

use base::IpCidr;

use crate::layout::{Geometry, VERSION};
use codec::{Reader, Writer};

/// No message is longer.
pub const MAX_MESSAGE: usize = 64 << 10;
/// No message about a file is longer.
pub const MAX_FILE_MESSAGE: usize = 16;
/// Longest name of an application, in bytes.
pub const MAX_NAME: usize = 256;
/// Most addresses and most routes in a welcome.
const MAX_LIST: usize = 512;

const HELLO: [u8; 8] = *b"HELLO   ";
const NEW_WAITER: [u8; 8] = *b"WAITER  ";
const RELEASE: [u8; 8] = *b"RELEASE ";
const LEND: [u8; 8] = *b"LEND    ";
const LENDER: [u8; 8] = *b"LENDER  ";
const FILE: [u8; 8] = *b"FILE    ";
const WELCOME: [u8; 8] = *b"WELCOME ";
const BELL: [u8; 8] = *b"BELL    ";
const REFUSED: [u8; 8] = *b"REFUSED ";

/// What an application is known by to the processes that it forks, and to nobody else.
pub type Token = [u8; 16];

/// What an application asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks for a channel.
    Hello {
        /// The version of the layout that it speaks.
        version: u32,
        /// Its process, as it says.
        pid: u32,
        /// Its name, for people.
        name: String,
        /// The application that forks it, whose sockets it has as well from now on. The connection is the child's then: it is made
        /// before the fork, so that nothing is closed in between.
        parent: Option<Token>,
    },
    /// A socket that it has from the application that forked it is of no use to it. There is no answer.
    Release {
        /// Which.
        identity: u64,
    },
    /// Asks for the bell of a waiter slot.
    NewWaiter {
        /// The slot.
        slot: u32,
    },
    /// Asks for a socket on which files can be lent.
    Lend,
}

/// What the FEP's network looks like to an application that must decide which traffic is the FEP's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The FEP's addresses, with the prefixes of their links.
    pub addresses: Vec<IpCidr>,
    /// Destinations that it routes; without a gateway they are on the link.
    pub routes: Vec<(IpCidr, Option<IpAddr>)>,
    /// The largest packet.
    pub mtu: u32,
}

/// What the FEP answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A channel; with segment A, segment F and the doorbell.
    Welcome {
        /// The sizes of its parts.
        geometry: Geometry,
        /// What the FEP reaches.
        network: Network,
        /// By this those that it forks name it.
        token: Token,
    },
    /// The bell of a slot; with its reading end.
    Bell {
        /// The slot.
        slot: u32,
    },
    /// A socket on which files can be lent; with it.
    Lender,
    /// No, and why.
    Refused(String),
}

/// What is said on a socket on which files are lent: by the application, with a file, that it lends it under a number; by
/// the FEP that it takes it (0), or why not (an errno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMessage {
    /// The file's number.
    pub file: u16,
    /// The answer.
    pub errno: u32,
}

impl FileMessage {
    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(FILE);
        writer.u32(self.file.into());
        writer.u32(self.errno);
        writer.finish()
    }

    /// From a message, which may be anything.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        if reader.kind()? != FILE {
            return None;
        }
        let (file, errno) = (u16::try_from(reader.u32()?).ok()?, reader.u32()?);
        reader.is_done().then_some(Self { file, errno })
    }
}

impl Request {
    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, pid, name, parent } => {
                let mut writer = Writer::new(HELLO);
                writer.u32(*version);
                writer.u32(*pid);
                writer.text(name, MAX_NAME);
                writer.u32(parent.is_some().into());
                writer.token(&parent.unwrap_or_default());
                writer.finish()
            }
            Self::Release { identity } => {
                let mut writer = Writer::new(RELEASE);
                writer.u64(*identity);
                writer.finish()
            }
            Self::NewWaiter { slot } => {
                let mut writer = Writer::new(NEW_WAITER);
                writer.u32(*slot);
                writer.finish()
            }
            Self::Lend => Writer::new(LEND).finish(),
        }
    }

    /// From a message of an application, which may be anything: `None` if it is none of these, an error if it says that
    /// it is but makes no sense. A HELLO of another version is accepted as far as its version.
    pub fn decode(message: &[u8]) -> Option<Result<Self, NotUnderstood>> {
        let mut reader = Reader::new(message);
        let request = match reader.kind()? {
            HELLO => decode_hello(&mut reader),
            RELEASE => reader.u64().filter(|_| reader.is_done()).map(|identity| Self::Release { identity }),
            LEND => reader.is_done().then_some(Self::Lend),
            NEW_WAITER => reader.u32().filter(|_| reader.is_done()).map(|slot| Self::NewWaiter { slot }),
            _ => return None,
        };
        Some(request.ok_or(NotUnderstood))
    }
}

fn decode_hello(reader: &mut Reader<'_>) -> Option<Request> {
    let version = reader.u32()?;
    if version != VERSION {
        return Some(Request::Hello { version, pid: 0, name: String::new(), parent: None });
    }
    let (pid, name) = (reader.u32()?, reader.text(MAX_NAME)?);
    let (has_parent, token) = (reader.u32()?, reader.token()?);
    let parent = match has_parent {
        0 => None,
        1 => Some(token),
        _ => return None,
    };
    reader.is_done().then_some(Request::Hello { version, pid, name, parent })
}

/// A message that starts like one of ours and makes no sense after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message makes no sense")]
pub struct NotUnderstood;

/// The text that refuses a HELLO of this version, if it must be refused.
pub fn version_refusal(version: u32) -> Option<String> {
    (version != VERSION).then(|| {
        format!(
            "the application speaks version {version} of the channel and the FEP version {VERSION}: \
             restart both from one build (`outboard down`, then `outboard up`)"
        )
    })
}

impl Answer {
    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { geometry, network, token } => {
                let mut writer = Writer::new(WELCOME);
                write_geometry(&mut writer, geometry);
                write_network(&mut writer, network);
                writer.token(token);
                writer.finish()
            }
            Self::Bell { slot } => {
                let mut writer = Writer::new(BELL);
                writer.u32(*slot);
                writer.finish()
            }
            Self::Lender => Writer::new(LENDER).finish(),
            Self::Refused(text) => {
                let mut writer = Writer::new(REFUSED);
                writer.text(text, MAX_MESSAGE / 2);
                writer.finish()
            }
        }
    }

    /// From a message of the FEP; `None` if it makes no sense.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        let answer = match reader.kind()? {
            WELCOME => Self::Welcome {
                geometry: read_geometry(&mut reader)?,
                network: read_network(&mut reader)?,
                token: reader.token()?,
            },
            BELL => Self::Bell { slot: reader.u32()? },
            LENDER => Self::Lender,
            REFUSED => Self::Refused(reader.text(MAX_MESSAGE / 2)?),
            _ => return None,
        };
        reader.is_done().then_some(answer)
    }
}

fn write_geometry(writer: &mut Writer, geometry: &Geometry) {
    for number in [geometry.sockets, geometry.waiters, geometry.commands, geometry.events] {
        writer.u32(number);
    }
    writer.u64(geometry.send_bytes);
    writer.u64(geometry.receive_bytes);
}

fn read_geometry(reader: &mut Reader<'_>) -> Option<Geometry> {
    Some(Geometry {
        sockets: reader.u32()?,
        waiters: reader.u32()?,
        commands: reader.u32()?,
        events: reader.u32()?,
        send_bytes: reader.u64()?,
        receive_bytes: reader.u64()?,
    })
}

fn write_network(writer: &mut Writer, network: &Network) {
    writer.u32(network.mtu);
    let addresses = &network.addresses[..network.addresses.len().min(MAX_LIST)];
    writer.u32(addresses.len() as u32);
    for address in addresses {
        writer.cidr(address);
    }
    let routes = &network.routes[..network.routes.len().min(MAX_LIST)];
    writer.u32(routes.len() as u32);
    for (destination, gateway) in routes {
        writer.cidr(destination);
        writer.address(*gateway);
    }
}

fn read_network(reader: &mut Reader<'_>) -> Option<Network> {
    let mut network = Network { mtu: reader.u32()?, ..Network::default() };
    for _ in 0..reader.count(MAX_LIST)? {
        network.addresses.push(reader.cidr()?);
    }
    for _ in 0..reader.count(MAX_LIST)? {
        network.routes.push((reader.cidr()?, reader.address()?));
    }
    Some(network)
}

#[cfg(test)]
mod tests;
