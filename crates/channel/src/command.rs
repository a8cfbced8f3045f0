//! What the application asks of the FEP: the entries of the command ring.
//!
//! An entry is four words. The first holds the operation (8 bits), a family (8), a small argument (16) and the socket
//! (32); the next two the arguments; the upper half of the last the sequence of a command that wants an answer.

use core::net::SocketAddr;
use std::net::Shutdown;

use base::Duration;
use stack::{MtuDiscovery, SocketOption};
use tcp::{CongestionAlgorithm, Keepalive};

use crate::layout::{COMMAND_WORDS, RingLocation};
use crate::record::{address_from_words, address_words};
use crate::{Geometry, Offence};

/// In what manner bytes are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As they are.
    #[default]
    Plain,
    /// More follows at once (`MSG_MORE`): less than a segment waits for it.
    More,
    /// The last of them is urgent (`MSG_OOB`).
    Urgent,
}

/// Which times of a send are wanted, and by what name they are told (`SO_TIMESTAMPING`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it is handed on to be sent.
    pub scheduled: bool,
    /// When it is sent.
    pub sent: bool,
    /// When it is acknowledged.
    pub acknowledged: bool,
    /// Comes back with the times.
    pub key: u32,
}

/// A command. Those with a `sequence` other than 0 are answered in the socket's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Opens a TCP socket under a number from the application's half.
    OpenTcp {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
    },
    /// Opens a UDP socket under a number from the application's half.
    OpenUdp {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
    },
    /// Binds to a local address; port 0 asks for a free one.
    Bind {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// The address.
        local: SocketAddr,
    },
    /// Takes connections.
    Listen {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// How many may wait.
        backlog: u32,
    },
    /// TCP: starts to connect; the answer is that of the start. UDP: sets the peer, or takes it away.
    Connect {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// The peer.
        remote: Option<SocketAddr>,
    },
    /// The send ring is there from now on; what was not acknowledged has been copied.
    AttachSend {
        /// The socket.
        socket: u32,
        /// Where, in A.
        location: RingLocation,
    },
    /// The stream is queued up to this offset.
    Send {
        /// The socket.
        socket: u32,
        /// The stream offset.
        queued_to: u64,
    },
    /// The stream is queued up to this offset; the FEP reads the bytes from a lent file into the send ring.
    Fill {
        /// The socket.
        socket: u32,
        /// The number of the file.
        file: u16,
        /// The stream offset.
        queued_to: u64,
        /// Where the bytes begin in the file.
        offset: u64,
    },
    /// A lent file is not used any more by commands that follow.
    ReturnFile {
        /// The number of the file.
        file: u16,
    },
    /// As SEND, and the application says that more follows at once (`MSG_MORE`).
    SendMore {
        /// The socket.
        socket: u32,
        /// The stream offset.
        queued_to: u64,
    },
    /// As SEND, and the last byte is urgent (`MSG_OOB`).
    SendUrgent {
        /// The socket.
        socket: u32,
        /// The stream offset.
        queued_to: u64,
    },
    /// The read cursor passed the offset at which the FEP wanted to hear of it.
    Consumed {
        /// The socket.
        socket: u32,
    },
    /// Ends one direction or both.
    Shutdown {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// Which.
        how: Shutdown,
    },
    /// Lets go: what is queued is still delivered, then RELEASED comes.
    Close {
        /// The socket.
        socket: u32,
    },
    /// Lets go and resets the connection.
    Abort {
        /// The socket.
        socket: u32,
    },
    /// Sets an option.
    SetOption {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// The option with its value.
        option: SocketOption,
    },
    /// An option that this version does not know; to be answered with `ENOPROTOOPT`.
    UnknownOption {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
    },
    /// Takes the oldest entry of the queue of errors, which is given in the header of F; `EAGAIN`: there is none.
    TakeError {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
    },
    /// Wants entries in the queue of errors that tell when the stream, or the records of datagrams, up to this offset were sent and
    /// acknowledged.
    Stamp {
        /// The socket.
        socket: u32,
        /// The stream offset.
        offset: u64,
        /// What is wanted of it.
        stamp: Stamp,
    },
    /// Asks for the largest packet on the way to an address, or to the peer; given in the header of F.
    PathMtu {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// The other end.
        remote: Option<SocketAddr>,
    },
    /// Takes over a socket that this process has from the one that forked it, under a number from the application's half. Where its
    /// streams stand is given in the header of F. `EAGAIN`: not yet; `ENOTCONN`: it is over, or was never shared.
    Claim {
        /// The number that it gets.
        socket: u32,
        /// For the answer.
        sequence: u32,
        /// Which.
        identity: u64,
    },
    /// Asks for [`TcpInfo`](tcp::TcpInfo), which is given in the header of F.
    Info {
        /// The socket.
        socket: u32,
        /// For the answer.
        sequence: u32,
    },
}

mod op {
    pub(super) const OPEN_TCP: u8 = 1;
    pub(super) const OPEN_UDP: u8 = 2;
    pub(super) const BIND: u8 = 3;
    pub(super) const LISTEN: u8 = 4;
    pub(super) const CONNECT: u8 = 5;
    pub(super) const ATTACH_SEND: u8 = 6;
    pub(super) const SEND: u8 = 7;
    pub(super) const CONSUMED: u8 = 8;
    pub(super) const SHUTDOWN: u8 = 9;
    pub(super) const CLOSE: u8 = 10;
    pub(super) const ABORT: u8 = 11;
    pub(super) const SET_OPTION: u8 = 12;
    pub(super) const INFO: u8 = 13;
    pub(super) const FILL: u8 = 14;
    pub(super) const RETURN_FILE: u8 = 15;
    pub(super) const SEND_MORE: u8 = 20;
    pub(super) const SEND_URGENT: u8 = 21;
    pub(super) const TAKE_ERROR: u8 = 22;
    pub(super) const PATH_MTU: u8 = 23;
    pub(super) const STAMP: u8 = 24;
    pub(super) const CLAIM: u8 = 25;
}

type Words = [u64; COMMAND_WORDS];

impl Command {
    /// The socket it is for; 0 where it is for none.
    pub fn socket(&self) -> u32 {
        match *self {
            Self::ReturnFile { .. } => 0,
            Self::OpenTcp { socket, .. }
            | Self::OpenUdp { socket, .. }
            | Self::Bind { socket, .. }
            | Self::Listen { socket, .. }
            | Self::Connect { socket, .. }
            | Self::AttachSend { socket, .. }
            | Self::Send { socket, .. }
            | Self::Fill { socket, .. }
            | Self::SendMore { socket, .. }
            | Self::SendUrgent { socket, .. }
            | Self::Consumed { socket }
            | Self::Shutdown { socket, .. }
            | Self::Close { socket }
            | Self::Abort { socket }
            | Self::SetOption { socket, .. }
            | Self::UnknownOption { socket, .. }
            | Self::TakeError { socket, .. }
            | Self::Stamp { socket, .. }
            | Self::PathMtu { socket, .. }
            | Self::Claim { socket, .. }
            | Self::Info { socket, .. } => socket,
        }
    }

    /// The sequence of the answer that it wants; 0: none.
    pub fn sequence(&self) -> u32 {
        match *self {
            Self::OpenTcp { sequence, .. }
            | Self::OpenUdp { sequence, .. }
            | Self::Bind { sequence, .. }
            | Self::Listen { sequence, .. }
            | Self::Connect { sequence, .. }
            | Self::Shutdown { sequence, .. }
            | Self::SetOption { sequence, .. }
            | Self::UnknownOption { sequence, .. }
            | Self::TakeError { sequence, .. }
            | Self::PathMtu { sequence, .. }
            | Self::Claim { sequence, .. }
            | Self::Info { sequence, .. } => sequence,
            Self::AttachSend { .. }
            | Self::Send { .. }
            | Self::Fill { .. }
            | Self::ReturnFile { .. }
            | Self::SendMore { .. }
            | Self::SendUrgent { .. }
            | Self::Consumed { .. }
            | Self::Close { .. }
            | Self::Abort { .. }
            | Self::Stamp { .. } => 0,
        }
    }

    pub(crate) fn encode(&self) -> Words {
        match *self {
            Self::OpenTcp { socket, sequence } => plain(op::OPEN_TCP, socket, sequence, 0),
            Self::OpenUdp { socket, sequence } => plain(op::OPEN_UDP, socket, sequence, 0),
            Self::Bind { socket, sequence, local } => with_address(op::BIND, socket, sequence, Some(local)),
            Self::Listen { socket, sequence, backlog } => {
                plain(op::LISTEN, socket, sequence, u64::from(backlog))
            }
            Self::Connect { socket, sequence, remote } => with_address(op::CONNECT, socket, sequence, remote),
            Self::AttachSend { socket, location } => plain(op::ATTACH_SEND, socket, 0, location.0),
            Self::Send { socket, queued_to } => plain(op::SEND, socket, 0, queued_to),
            Self::Fill { socket, file, queued_to, offset } => {
                let [head, argument, _, tail] = plain(op::FILL, socket, 0, queued_to);
                [head | u64::from(file) << 16, argument, offset, tail]
            }
            Self::ReturnFile { file } => plain(op::RETURN_FILE, 0, 0, u64::from(file)),
            Self::SendMore { socket, queued_to } => plain(op::SEND_MORE, socket, 0, queued_to),
            Self::SendUrgent { socket, queued_to } => plain(op::SEND_URGENT, socket, 0, queued_to),
            Self::Consumed { socket } => plain(op::CONSUMED, socket, 0, 0),
            Self::Shutdown { socket, sequence, how } => {
                let how = match how {
                    Shutdown::Read => 1,
                    Shutdown::Write => 2,
                    Shutdown::Both => 3,
                };
                plain(op::SHUTDOWN, socket, sequence, how)
            }
            Self::Close { socket } => plain(op::CLOSE, socket, 0, 0),
            Self::Abort { socket } => plain(op::ABORT, socket, 0, 0),
            Self::SetOption { socket, sequence, option } => {
                let (code, value) = encode_option(option);
                let [head, _, spare, tail] = plain(op::SET_OPTION, socket, sequence, 0);
                [head | u64::from(code) << 16, value, spare, tail]
            }
            Self::UnknownOption { socket, sequence } => {
                let [head, argument, spare, tail] = plain(op::SET_OPTION, socket, sequence, 0);
                [head | u64::from(u16::MAX) << 16, argument, spare, tail]
            }
            Self::TakeError { socket, sequence } => plain(op::TAKE_ERROR, socket, sequence, 0),
            Self::Stamp { socket, offset, stamp } => {
                let [head, argument, _, tail] = plain(op::STAMP, socket, 0, offset);
                let wanted = u64::from(stamp.scheduled)
                    | u64::from(stamp.sent) << 1
                    | u64::from(stamp.acknowledged) << 2;
                [head | wanted << 16, argument, u64::from(stamp.key), tail]
            }
            Self::PathMtu { socket, sequence, remote } => {
                with_address(op::PATH_MTU, socket, sequence, remote)
            }
            Self::Claim { socket, sequence, identity } => plain(op::CLAIM, socket, sequence, identity),
            Self::Info { socket, sequence } => plain(op::INFO, socket, sequence, 0),
        }
    }

    /// Decodes a private copy of an entry.
    pub(crate) fn decode(words: Words, geometry: &Geometry) -> Result<Self, Offence> {
        let (operation, small, socket) = (words[0] as u8, (words[0] >> 16) as u16, (words[0] >> 32) as u32);
        let (argument, sequence) = (words[1], (words[3] >> 32) as u32);
        if socket >= geometry.sockets {
            return Err(Offence::BadSocket);
        }
        Ok(match operation {
            op::OPEN_TCP => Self::OpenTcp { socket, sequence },
            op::OPEN_UDP => Self::OpenUdp { socket, sequence },
            op::BIND => {
                let local = decode_address(words)?.ok_or(Offence::BadArgument)?;
                Self::Bind { socket, sequence, local }
            }
            op::LISTEN => {
                let backlog = u32::try_from(argument).map_err(|_| Offence::BadArgument)?;
                Self::Listen { socket, sequence, backlog }
            }
            op::CONNECT => Self::Connect { socket, sequence, remote: decode_address(words)? },
            op::ATTACH_SEND => Self::AttachSend { socket, location: RingLocation(argument) },
            op::SEND => Self::Send { socket, queued_to: argument },
            op::FILL => Self::Fill { socket, file: small, queued_to: argument, offset: words[2] },
            op::RETURN_FILE => {
                let file = u16::try_from(argument).map_err(|_| Offence::BadArgument)?;
                Self::ReturnFile { file }
            }
            op::SEND_MORE => Self::SendMore { socket, queued_to: argument },
            op::SEND_URGENT => Self::SendUrgent { socket, queued_to: argument },
            op::CONSUMED => Self::Consumed { socket },
            op::SHUTDOWN => {
                let how = match argument {
                    1 => Shutdown::Read,
                    2 => Shutdown::Write,
                    3 => Shutdown::Both,
                    _ => return Err(Offence::BadArgument),
                };
                Self::Shutdown { socket, sequence, how }
            }
            op::CLOSE => Self::Close { socket },
            op::ABORT => Self::Abort { socket },
            op::SET_OPTION => match decode_option(small, argument)? {
                Some(option) => Self::SetOption { socket, sequence, option },
                None => Self::UnknownOption { socket, sequence },
            },
            op::TAKE_ERROR => Self::TakeError { socket, sequence },
            op::STAMP => {
                let key = u32::try_from(words[2]).map_err(|_| Offence::BadArgument)?;
                if small > 7 {
                    return Err(Offence::BadArgument);
                }
                let (scheduled, sent, acknowledged) = (small & 1 != 0, small & 2 != 0, small & 4 != 0);
                let stamp = Stamp { scheduled, sent, acknowledged, key };
                Self::Stamp { socket, offset: argument, stamp }
            }
            op::PATH_MTU => Self::PathMtu { socket, sequence, remote: decode_address(words)? },
            op::CLAIM => Self::Claim { socket, sequence, identity: argument },
            op::INFO => Self::Info { socket, sequence },
            _ => return Err(Offence::UnknownCommand),
        })
    }
}

fn plain(operation: u8, socket: u32, sequence: u32, argument: u64) -> Words {
    [u64::from(operation) | u64::from(socket) << 32, argument, 0, u64::from(sequence) << 32]
}

fn with_address(operation: u8, socket: u32, sequence: u32, address: Option<SocketAddr>) -> Words {
    let [first, second, rest] = address_words(address);
    let (port, family, scope) = (rest & 0xffff, rest >> 16 & 0xff, rest >> 32);
    let [head, _, _, tail] = plain(operation, socket, sequence, 0);
    [head | family << 8 | port << 16, first, second, tail | scope]
}

fn decode_address(words: Words) -> Result<Option<SocketAddr>, Offence> {
    let (family, port, scope) = (words[0] >> 8 & 0xff, words[0] >> 16 & 0xffff, words[3] & 0xffff_ffff);
    if family == 0 {
        return Ok(None);
    }
    let address = address_from_words([words[1], words[2], port | family << 16 | scope << 32]);
    address.map(Some).ok_or(Offence::BadArgument)
}

mod option {
    pub(super) const REUSE_ADDRESS: u16 = 1;
    pub(super) const REUSE_PORT: u16 = 2;
    pub(super) const BROADCAST: u16 = 3;
    pub(super) const TTL: u16 = 4;
    pub(super) const TOS: u16 = 5;
    pub(super) const NODELAY: u16 = 6;
    pub(super) const CORK: u16 = 7;
    pub(super) const QUICK_ACK: u16 = 8;
    pub(super) const KEEPALIVE: u16 = 9;
    pub(super) const RECEIVE_LIMIT: u16 = 10;
    pub(super) const USER_TIMEOUT: u16 = 11;
    pub(super) const LINGER2: u16 = 12;
    pub(super) const CONGESTION: u16 = 13;
    pub(super) const FAST_OPEN: u16 = 20;
    pub(super) const FAST_OPEN_CONNECT: u16 = 21;
    pub(super) const DEFER_ACCEPT: u16 = 22;
    pub(super) const MAX_SEGMENT: u16 = 30;
    pub(super) const SYN_RETRIES: u16 = 31;
    pub(super) const TELL_SENT: u16 = 32;
    pub(super) const MTU_DISCOVERY: u16 = 33;
    pub(super) const QUEUE_ERRORS: u16 = 34;
    pub(super) const RECEIVE_RUNS: u16 = 35;
}

fn encode_option(option: SocketOption) -> (u16, u64) {
    match option {
        SocketOption::ReuseAddress(on) => (option::REUSE_ADDRESS, on.into()),
        SocketOption::ReusePort(on) => (option::REUSE_PORT, on.into()),
        SocketOption::Broadcast(on) => (option::BROADCAST, on.into()),
        SocketOption::Ttl(ttl) => (option::TTL, ttl.into()),
        SocketOption::Tos(tos) => (option::TOS, tos.into()),
        SocketOption::NoDelay(on) => (option::NODELAY, on.into()),
        SocketOption::Cork(on) => (option::CORK, on.into()),
        SocketOption::QuickAck(on) => (option::QUICK_ACK, on.into()),
        SocketOption::Keepalive(times) => (option::KEEPALIVE, times.map_or(0, encode_keepalive)),
        SocketOption::ReceiveLimit(bytes) => (option::RECEIVE_LIMIT, bytes.into()),
        SocketOption::UserTimeout(time) => (option::USER_TIMEOUT, encode_time(time)),
        SocketOption::Linger2(time) => (option::LINGER2, encode_time(time)),
        // Plus one: 0 is the default.
        SocketOption::SynRetries(count) => {
            (option::SYN_RETRIES, count.map_or(0, |count| u64::from(count) + 1))
        }
        SocketOption::Congestion(algorithm) => (option::CONGESTION, algorithm.code().into()),
        SocketOption::FastOpen(limit) => (option::FAST_OPEN, limit.into()),
        SocketOption::FastOpenConnect(on) => (option::FAST_OPEN_CONNECT, on.into()),
        SocketOption::DeferAccept(time) => (option::DEFER_ACCEPT, encode_time(time)),
        SocketOption::MaxSegment(size) => (option::MAX_SEGMENT, size.map_or(0, u64::from)),
        SocketOption::TellSent(on) => (option::TELL_SENT, on.into()),
        SocketOption::MtuDiscovery(manner) => (option::MTU_DISCOVERY, manner as u64),
        SocketOption::QueueErrors(on) => (option::QUEUE_ERRORS, on.into()),
        SocketOption::ReceiveRuns(on) => (option::RECEIVE_RUNS, on.into()),
    }
}

/// `None` for an option that this version does not know.
fn decode_option(code: u16, value: u64) -> Result<Option<SocketOption>, Offence> {
    let on = || match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Offence::BadArgument),
    };
    let octet = || u8::try_from(value).map_err(|_| Offence::BadArgument);
    Ok(Some(match code {
        option::REUSE_ADDRESS => SocketOption::ReuseAddress(on()?),
        option::REUSE_PORT => SocketOption::ReusePort(on()?),
        option::BROADCAST => SocketOption::Broadcast(on()?),
        option::TTL => SocketOption::Ttl(octet()?),
        option::TOS => SocketOption::Tos(octet()?),
        option::NODELAY => SocketOption::NoDelay(on()?),
        option::CORK => SocketOption::Cork(on()?),
        option::QUICK_ACK => SocketOption::QuickAck(on()?),
        option::KEEPALIVE => SocketOption::Keepalive(decode_keepalive(value)?),
        option::RECEIVE_LIMIT => {
            SocketOption::ReceiveLimit(u32::try_from(value).map_err(|_| Offence::BadArgument)?)
        }
        option::USER_TIMEOUT => SocketOption::UserTimeout(decode_time(value)?),
        option::LINGER2 => SocketOption::Linger2(decode_time(value)?),
        option::CONGESTION => {
            SocketOption::Congestion(CongestionAlgorithm::from_code(octet()?).ok_or(Offence::BadArgument)?)
        }
        option::SYN_RETRIES => SocketOption::SynRetries(match value.checked_sub(1) {
            None => None,
            Some(count) => Some(u8::try_from(count).map_err(|_| Offence::BadArgument)?),
        }),
        option::FAST_OPEN => SocketOption::FastOpen(u32::try_from(value).map_err(|_| Offence::BadArgument)?),
        option::FAST_OPEN_CONNECT => SocketOption::FastOpenConnect(on()?),
        option::DEFER_ACCEPT => SocketOption::DeferAccept(decode_time(value)?),
        option::MAX_SEGMENT => {
            let size = u16::try_from(value).map_err(|_| Offence::BadArgument)?;
            SocketOption::MaxSegment((size > 0).then_some(size))
        }
        option::TELL_SENT => SocketOption::TellSent(on()?),
        option::MTU_DISCOVERY => {
            SocketOption::MtuDiscovery(MtuDiscovery::from_number(octet()?).ok_or(Offence::BadArgument)?)
        }
        option::QUEUE_ERRORS => SocketOption::QueueErrors(on()?),
        option::RECEIVE_RUNS => SocketOption::ReceiveRuns(on()?),
        _ => return Ok(None),
    }))
}

/// Longest times that an option may give, in seconds: those of Linux (`MAX_TCP_KEEPIDLE` and its like).
const MAX_KEEPALIVE_SECONDS: u64 = 32_767;

/// Idle and interval in whole seconds (24 bits each), the count above them; 0 stands for *off*, so that the count is
/// at least 1.
fn encode_keepalive(times: Keepalive) -> u64 {
    let seconds = |time: Duration| (time.as_nanos() / 1_000_000_000).clamp(1, MAX_KEEPALIVE_SECONDS);
    seconds(times.idle) | seconds(times.interval) << 24 | u64::from(times.count.max(1)) << 48
}

fn decode_keepalive(value: u64) -> Result<Option<Keepalive>, Offence> {
    if value == 0 {
        return Ok(None);
    }
    let (idle, interval, count) = (value & 0xff_ffff, value >> 24 & 0xff_ffff, value >> 48);
    let seconds = 1..=MAX_KEEPALIVE_SECONDS;
    if !seconds.contains(&idle) || !seconds.contains(&interval) || !(1..=255).contains(&count) {
        return Err(Offence::BadArgument);
    }
    let time = |seconds: u64| Duration::from_secs(seconds);
    Ok(Some(Keepalive { idle: time(idle), interval: time(interval), count: count as u8 }))
}

/// The longest time that an option may give, in microseconds: some fifty days.
const LONGEST_TIME_US: u64 = u32::MAX as u64 * 1000;

/// Microseconds plus one; 0 is `None`. What is longer than any is the longest.
fn encode_time(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| (time.as_nanos() / 1000).min(LONGEST_TIME_US) + 1)
}

fn decode_time(value: u64) -> Result<Option<Duration>, Offence> {
    match value.checked_sub(1) {
        None => Ok(None),
        Some(micros) if micros > LONGEST_TIME_US => Err(Offence::BadArgument),
        Some(micros) => Ok(Some(Duration::from_micros(micros))),
    }
}

#[cfg(test)]
mod tests;
