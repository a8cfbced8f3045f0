//! What applications do: conversations between a client and a server, each side by a plan.

use base::{Duration, Instant};
use stack::{SocketId, SocketOptions};

use crate::pattern::Phase;

/// A connection that a client opens, and what both sides do with it.
#[derive(Clone, Debug)]
pub struct ConversationSpec {
    /// The client's host.
    pub client: u16,
    /// The server's host.
    pub server: u16,
    /// The server's port; a listener is made when the first conversation names it.
    pub port: u16,
    /// When the client connects.
    pub start: Instant,
    /// What the client does.
    pub client_plan: Plan,
    /// What the server does.
    pub server_plan: Plan,
}

/// What one side of a conversation does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many bytes it sends, if nothing stops it.
    pub send: u64,
    /// It stops sending at this time.
    pub send_until: Option<Instant>,
    /// What it waits for before it sends more.
    pub pace: Pace,
    /// The most bytes that it hands over at a time.
    pub chunk: usize,
    /// The most bytes that it lets wait for acknowledgement.
    pub buffer: u64,
    /// How it reads.
    pub read: Read,
    /// How it ends.
    pub end: End,
    /// The options of its socket; the server's are the listener's, by the first conversation on a port.
    pub options: SocketOptions,
}

/// What a side waits for before it sends more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nothing.
    Free,
    /// Turns: `mine` bytes, then `theirs` from the other side, and again.
    Turns {
        /// Bytes of this side's turn.
        mine: u64,
        /// Bytes of the other side's turn.
        theirs: u64,
        /// Whether this side begins.
        leads: bool,
    },
}

/// How a side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// At once.
    Eager,
    /// At most `bytes` each `every`.
    Slow {
        /// Bytes.
        bytes: u64,
        /// The time between.
        every: Duration,
    },
}

/// How a side ends a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It shuts sending down when it has sent all, and closes when the other side has as well.
    Orderly,
    /// It closes this long after all has been sent and received, without a shutdown before.
    Linger(Duration),
    /// It closes as soon as everything has been handed over. The other side must not send anything.
    CloseAtOnce,
    /// It resets the connection this long after it was established, if it still stands.
    Abort(Duration),
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            send: 0,
            send_until: None,
            pace: Pace::Free,
            chunk: 64 << 10,
            buffer: 16 << 20,
            read: Read::Eager,
            end: End::Orderly,
            options: SocketOptions::default(),
        }
    }
}

impl Plan {
    /// Sends `send` bytes and is otherwise orderly.
    pub fn sending(send: u64) -> Self {
        Self { send, ..Self::default() }
    }

    /// Up to which offset it may send, having received `received` bytes.
    pub fn allowed(&self, received: u64) -> u64 {
        match self.pace {
            Pace::Free => self.send,
            Pace::Turns { mine, theirs, leads } => {
                let turns = received / theirs.max(1) + u64::from(leads);
                mine.saturating_mul(turns).min(self.send)
            }
        }
    }
}

/// How far one side has come.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The host it is on.
    pub host: u16,
    /// What it does.
    pub plan: Plan,
    /// Its socket, from when it is opened or accepted until it is released.
    pub socket: Option<SocketId>,
    /// Its state.
    pub stage: Stage,
    /// Bytes handed over.
    pub queued: u64,
    /// Bytes acknowledged by the other side.
    pub acked: u64,
    /// Bytes read, all of them right.
    pub read: u64,
    /// The other side has shut down, and everything before it was read.
    pub saw_end: bool,
    /// Sending was shut down.
    pub shut: bool,
    /// Why the connection failed, if it did.
    pub error: Option<tcp::Error>,
    /// When it was established.
    pub established: Option<Instant>,
    /// When something last moved: bytes, or a state.
    pub progress: Instant,
    /// When all was sent and received; then it may linger.
    pub complete: Option<Instant>,
    /// It may not read before.
    pub next_read: Instant,
    pub(crate) send_phase: Phase,
    pub(crate) receive_phase: Phase,
}

/// The life of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not opened yet.
    Waiting,
    /// Opened or accepted.
    Open,
    /// Closed by its application, not yet released.
    Closed,
    /// Done with.
    Released,
}

impl Endpoint {
    pub(crate) fn new(host: u16, plan: Plan, start: Instant, streams: (u64, u64)) -> Self {
        Self {
            host,
            plan,
            socket: None,
            stage: Stage::Waiting,
            queued: 0,
            acked: 0,
            read: 0,
            saw_end: false,
            shut: false,
            error: None,
            established: None,
            progress: start,
            complete: None,
            next_read: Instant::ZERO,
            send_phase: Phase::of_stream(streams.0),
            receive_phase: Phase::of_stream(streams.1),
        }
    }

    /// How many bytes it sends at `now`: everything, or what it has sent when its time is over.
    pub(crate) fn target(&self, now: Instant) -> u64 {
        match self.plan.send_until {
            Some(until) if now >= until => self.queued,
            _ => self.plan.send,
        }
    }

    /// When its plan wants to be looked at again after `now`, whatever happens on the network.
    pub(crate) fn wake(&self, now: Instant) -> Instant {
        if self.stage != Stage::Open {
            return Instant::FAR_FUTURE;
        }
        let mut wake = Instant::FAR_FUTURE;
        let mut consider = |at: Instant| {
            if at > now {
                wake = wake.min(at);
            }
        };
        if let Read::Slow { .. } = self.plan.read {
            consider(self.next_read);
        }
        if let Some(until) = self.plan.send_until {
            consider(until);
        }
        match (self.plan.end, self.established, self.complete) {
            (End::Abort(after), Some(established), _) => consider(established + after),
            (End::Linger(after), _, Some(complete)) => consider(complete + after),
            _ => {}
        }
        wake
    }
}
