//! The states of RFC 9293 §3.3.2 and every transition between them.
//!
//! [`State::on`] is the whole table: a state changes through it and nowhere else. LISTEN is not a state of a connection
//! here (a listener has no connection yet): see [`crate::handshake::listen`].

use core::fmt;

/// The state of a connection (RFC 9293 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// No connection any more.
    Closed = 0,
    /// A SYN was sent, nothing has come back.
    SynSent = 1,
    /// A SYN was received, ours is not yet acknowledged.
    SynReceived = 2,
    /// Data flows both ways.
    Established = 3,
    /// The owner has shut sending down; the FIN is not yet acknowledged.
    FinWait1 = 4,
    /// Our FIN is acknowledged; the peer still sends.
    FinWait2 = 5,
    /// The peer has shut sending down; we still send.
    CloseWait = 6,
    /// Both shut down at once; our FIN is not yet acknowledged.
    Closing = 7,
    /// The peer shut down first, then we; our FIN is not yet acknowledged.
    LastAck = 8,
    /// All is done; old segments may still be on their way.
    TimeWait = 9,
}

/// What can change a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A SYN without an acknowledgement of ours came: simultaneous open.
    SynReceived,
    /// A SYN came that acknowledges ours.
    SynAckReceived,
    /// Our SYN is acknowledged by a segment without a SYN.
    SynAcknowledged,
    /// The peer's FIN is next in order.
    FinReceived,
    /// Our FIN is acknowledged.
    FinAcknowledged,
    /// The owner sends no more.
    Shutdown,
    /// The owner gives the connection up at once.
    Abort,
    /// An acceptable reset came.
    ResetReceived,
    /// The peer no longer answers.
    TimedOut,
    /// FIN-WAIT-2 or TIME-WAIT has lasted long enough.
    LingerExpired,
}

/// What a transition asks the connection to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Send the SYN again, now with an acknowledgement.
    SendSynAck,
    /// Acknowledge at once; data may flow.
    SendAck,
    /// Data may flow.
    Open,
    /// A FIN follows what is queued.
    QueueFin,
    /// Send a reset.
    SendReset,
    /// Wait for two maximum segment lifetimes.
    StartTimeWait,
    /// Nothing is left to be done.
    Release,
}

/// Where an event leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state afterwards.
    pub state: State,
    /// What is to be done.
    pub action: Action,
}

const fn to(state: State, action: Action) -> Option<Transition> {
    Some(Transition { state, action })
}

impl State {
    /// All states, in RFC order.
    pub const ALL: [Self; 10] = [
        Self::Closed,
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
    ];

    /// Where `event` leads from here; `None` if it means nothing in this state.
    pub const fn on(self, event: Event) -> Option<Transition> {
        use Action as A;
        match event {
            Event::SynReceived => match self {
                // RFC 9293 §3.10.7.3, fourth: a SYN alone.
                Self::SynSent => to(Self::SynReceived, A::SendSynAck),
                Self::Closed
                | Self::SynReceived
                | Self::Established
                | Self::FinWait1
                | Self::FinWait2
                | Self::CloseWait
                | Self::Closing
                | Self::LastAck
                | Self::TimeWait => None,
            },
            Event::SynAckReceived => match self {
                Self::SynSent => to(Self::Established, A::SendAck),
                Self::SynReceived => to(Self::Established, A::SendAck),
                Self::Closed
                | Self::Established
                | Self::FinWait1
                | Self::FinWait2
                | Self::CloseWait
                | Self::Closing
                | Self::LastAck
                | Self::TimeWait => None,
            },
            Event::SynAcknowledged => match self {
                Self::SynReceived => to(Self::Established, A::Open),
                Self::Closed
                | Self::SynSent
                | Self::Established
                | Self::FinWait1
                | Self::FinWait2
                | Self::CloseWait
                | Self::Closing
                | Self::LastAck
                | Self::TimeWait => None,
            },
            Event::FinReceived => self.on_fin_received(),
            Event::FinAcknowledged => self.on_fin_acknowledged(),
            Event::Shutdown => self.on_shutdown(),
            Event::Abort => self.on_abort(),
            Event::ResetReceived | Event::TimedOut => match self {
                Self::Closed => None,
                Self::SynSent
                | Self::SynReceived
                | Self::Established
                | Self::FinWait1
                | Self::FinWait2
                | Self::CloseWait
                | Self::Closing
                | Self::LastAck => to(Self::Closed, A::Release),
                // RFC 1337: a reset does not end TIME-WAIT early.
                Self::TimeWait => None,
            },
            Event::LingerExpired => match self {
                Self::FinWait2 | Self::TimeWait => to(Self::Closed, A::Release),
                Self::Closed
                | Self::SynSent
                | Self::SynReceived
                | Self::Established
                | Self::FinWait1
                | Self::CloseWait
                | Self::Closing
                | Self::LastAck => None,
            },
        }
    }

    /// RFC 9293 §3.10.7.4, eighth: the FIN bit.
    const fn on_fin_received(self) -> Option<Transition> {
        match self {
            Self::SynReceived | Self::Established => to(Self::CloseWait, Action::SendAck),
            Self::FinWait1 => to(Self::Closing, Action::SendAck),
            Self::FinWait2 => to(Self::TimeWait, Action::StartTimeWait),
            Self::TimeWait => to(Self::TimeWait, Action::StartTimeWait),
            Self::Closed | Self::SynSent | Self::CloseWait | Self::Closing | Self::LastAck => None,
        }
    }

    /// RFC 9293 §3.10.7.4, fifth: our FIN is acknowledged.
    const fn on_fin_acknowledged(self) -> Option<Transition> {
        match self {
            Self::FinWait1 => to(Self::FinWait2, Action::Nothing),
            Self::Closing => to(Self::TimeWait, Action::StartTimeWait),
            Self::LastAck => to(Self::Closed, Action::Release),
            Self::Closed
            | Self::SynSent
            | Self::SynReceived
            | Self::Established
            | Self::FinWait2
            | Self::CloseWait
            | Self::TimeWait => None,
        }
    }

    /// RFC 9293 §3.10.4: the owner closes its sending side.
    const fn on_shutdown(self) -> Option<Transition> {
        match self {
            // Queued until the connection is established.
            Self::SynSent => to(Self::SynSent, Action::QueueFin),
            Self::SynReceived => to(Self::SynReceived, Action::QueueFin),
            Self::Established => to(Self::FinWait1, Action::QueueFin),
            Self::CloseWait => to(Self::LastAck, Action::QueueFin),
            Self::Closed
            | Self::FinWait1
            | Self::FinWait2
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait => None,
        }
    }

    /// RFC 9293 §3.10.5: the owner aborts.
    const fn on_abort(self) -> Option<Transition> {
        match self {
            Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2 | Self::CloseWait => {
                to(Self::Closed, Action::SendReset)
            }
            Self::SynSent | Self::TimeWait => to(Self::Closed, Action::Release),
            // §3.10.5 would only delete the block; a reset spares the peer its retransmissions.
            Self::Closing | Self::LastAck => to(Self::Closed, Action::SendReset),
            Self::Closed => None,
        }
    }

    /// Whether both initial sequence numbers are known and acknowledged (RFC 9293 §3.5.1).
    pub const fn is_synchronised(self) -> bool {
        match self {
            Self::Closed | Self::SynSent | Self::SynReceived => false,
            Self::Established
            | Self::FinWait1
            | Self::FinWait2
            | Self::CloseWait
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait => true,
        }
    }

    /// Whether the peer may still send data.
    pub const fn receives_data(self) -> bool {
        match self {
            Self::Established | Self::FinWait1 | Self::FinWait2 => true,
            Self::Closed
            | Self::SynSent
            | Self::SynReceived
            | Self::CloseWait
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait => false,
        }
    }

    /// Whether queued data or the FIN may still have to be sent.
    pub const fn sends_data(self) -> bool {
        match self {
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck => true,
            Self::Closed | Self::SynSent | Self::SynReceived | Self::FinWait2 | Self::TimeWait => false,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    /// The RFC's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        }
    }
}

impl Event {
    /// All events.
    pub const ALL: [Self; 10] = [
        Self::SynReceived,
        Self::SynAckReceived,
        Self::SynAcknowledged,
        Self::FinReceived,
        Self::FinAcknowledged,
        Self::Shutdown,
        Self::Abort,
        Self::ResetReceived,
        Self::TimedOut,
        Self::LingerExpired,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
