//! One application: its channel, and what the worker knows of each of its sockets.

use std::sync::Arc;

use channel::Offence;
use channel::fep::{AppChannel, DatagramRings, Owner};
use stack::{SocketId, SocketOptions};

use super::errors::ErrorQueues;
use super::kin::{Birth, Kin};
use crate::clerk::Desk;

/// Who an application is, by the kernel's word where it comes over a control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its program's name.
    pub name: String,
}

/// Why an application's sockets are being taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has gone: what it sent is still delivered, as the sockets of a process that exits.
    Gone,
    /// It broke the rules: everything is reset.
    CutOff(Offence),
}

/// A socket of an application.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Its number is not in use.
    Free,
    /// A TCP socket that has no address yet.
    FreshTcp(Box<SocketOptions>),
    /// A UDP socket that has no address yet.
    FreshUdp(Box<(SocketOptions, DatagramRings)>),
    /// A socket of the stack.
    Live(Live),
    /// Another application that holds it uses it.
    Moved(SocketId),
    /// Closed by the application; its number is free again once the stack lets go.
    Closing(SocketId),
}

/// A socket that the stack knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// Its name in the stack.
    pub(crate) id: SocketId,
    /// What it is.
    pub(crate) kind: LiveKind,
    /// When it was opened, and by whom.
    pub(crate) birth: Birth,
    /// It came to the application when another one closed it, and was not claimed yet: the application does not know its number.
    pub(crate) inherited: bool,
    /// Who had it before has asked for a reset at its end (`SO_LINGER`), and this one has not claimed it.
    pub(crate) resets: bool,
    /// The application reads no more (`SHUT_RD`).
    pub(crate) read_closed: bool,
    /// Its last error was published; a connection has only one.
    pub(crate) error_told: bool,
    /// It is on the list of sockets whose receive memory may go back when it idles.
    pub(crate) watched_for_idleness: bool,
    /// Its reader is on the list of those to be woken in the next pause.
    pub(crate) withheld: bool,
    /// Of a connection: the listener that it came by.
    pub(crate) listener: Option<SocketId>,
    /// Of a listener: how many connections it was told of; wraps.
    pub(crate) announced: u32,
    /// Of a listener: it is on the list of those whose program is slow to accept.
    pub(crate) crowded: bool,
}

/// What a live socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveKind {
    /// TCP with a local address and nothing more.
    Bound,
    /// A TCP connection, from the attempt on.
    Connection,
    /// A TCP listener.
    Listener,
    /// A UDP socket.
    Udp,
}

impl Live {
    pub(crate) fn new(id: SocketId, kind: LiveKind, birth: Birth) -> Self {
        Self {
            id,
            kind,
            birth,
            inherited: false,
            resets: false,
            read_closed: false,
            error_told: false,
            watched_for_idleness: false,
            withheld: false,
            listener: None,
            announced: 0,
            crowded: false,
        }
    }
}

/// An application with its channel.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) channel: AppChannel,
    pub(crate) owner: Owner,
    pub(crate) identity: Identity,
    /// The control connection by its number, where there is one: it hangs up when the application ends.
    pub(crate) connection: Option<u32>,
    /// Where its lent files are, once it lends some.
    pub(crate) desk: Option<Arc<Desk>>,
    /// Set once it is over; the sockets are then taken down bit by bit.
    pub(crate) ending: Option<Ending>,
    /// Where that has got to.
    pub(crate) next_to_end: u32,
    /// Listeners with connections that found no free number.
    pub(crate) starved: Vec<u32>,
    /// What its sockets' queues of errors hold.
    pub(crate) errors: ErrorQueues,
    /// What it is to applications that it forked, or that forked it.
    pub(crate) kin: Kin,
    /// Sockets that are open or closing.
    pub(crate) open: u32,
    sockets: Vec<Entry>,
}

impl Application {
    pub(crate) fn new(channel: AppChannel, identity: Identity, connection: Option<u32>) -> Self {
        let owner = channel.owner();
        Self {
            channel,
            owner,
            identity,
            connection,
            desk: None,
            ending: None,
            next_to_end: 0,
            starved: Vec::new(),
            errors: ErrorQueues::default(),
            kin: Kin::default(),
            open: 0,
            sockets: Vec::new(),
        }
    }

    /// The entry of a socket number, which the channel has found to be within its table.
    pub(crate) fn entry(&mut self, socket: u32) -> &mut Entry {
        let index = socket as usize;
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, || Entry::Free);
        }
        &mut self.sockets[index]
    }

    /// Puts an entry where there was none.
    pub(crate) fn insert(&mut self, socket: u32, entry: Entry) {
        *self.entry(socket) = entry;
        self.open += 1;
    }

    /// Takes an entry out for good.
    pub(crate) fn remove(&mut self, socket: u32) -> Entry {
        let entry = std::mem::replace(self.entry(socket), Entry::Free);
        if !matches!(entry, Entry::Free) {
            self.open -= 1;
        }
        entry
    }

    /// The live socket of this number.
    pub(crate) fn live(&mut self, socket: u32) -> Option<&mut Live> {
        match self.sockets.get_mut(socket as usize)? {
            Entry::Live(live) => Some(live),
            Entry::Free | Entry::FreshTcp(_) | Entry::FreshUdp(_) | Entry::Moved(_) | Entry::Closing(_) => {
                None
            }
        }
    }

    /// One past the highest number that was ever in use.
    pub(crate) fn socket_numbers(&self) -> u32 {
        self.sockets.len() as u32
    }
}
