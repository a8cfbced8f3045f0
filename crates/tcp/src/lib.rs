//! One TCP connection as a sans-IO state machine: segments and `now` in; segments, progress and a deadline out.
//!
//! Holds no clock, no randomness, no buffer and no pointer to its owner. The bytes of the streams are reached through
//! [`SendBuffer`] and [`ReceiveBuffer`] by their offsets in the stream.
//!
//! Reading order:
//! 1. [`segment`]: what goes in and out, and positions that do not wrap.
//! 2. [`state`]: the states and every transition.
//! 3. [`connection`]: the connection itself; [`config`] and `getters` beside it.
//! 4. `handshake/`: LISTEN, SYN-SENT, SYN-RECEIVED, negotiation, initial sequence numbers, SYN cookies, fast open.
//! 5. `input/`: the numbered order of RFC 9293 §3.10.7; `recv/`: reassembly, the window, its growth.
//! 6. `output/`: what to send next; `send/`: the send variables and the scoreboard.
//! 7. `recovery/`: round trips, timeouts, RACK, probes, proportional rate reduction, undo; `congestion/`.
//! 8. `path_mtu` and `path_memory`: what is known of the path.
//! 9. `info` (`struct tcp_info`), `limited` (what limits sending, and for how long).
//! 10. `urgent`, [`time_wait`], [`snapshot`].
#![forbid(unsafe_code)]

mod challenge_ack;
pub mod config;
mod congestion;
pub mod connection;
pub mod cut_through;
mod deadline;
mod ecn;
pub mod error;
mod getters;
pub mod handshake;
mod info;
mod input;
mod limited;
mod output;
mod pacing;
mod path_memory;
mod path_mtu;
mod recovery;
mod recv;
pub mod segment;
mod send;
mod settings;
pub mod snapshot;
pub mod state;
pub mod stats;
pub mod time_wait;
mod timer;
mod urgent;
pub mod verdict;

pub use config::{AccurateEcn, Config, CongestionAlgorithm, Keepalive, MtuProbing};
pub use connection::Connection;
pub use error::{Error, IcmpError};
pub use getters::Info;
pub use handshake::closed::reset_for;
pub use handshake::fast_open::{CookieVerdict, FastOpen, FastOpenKeys, FastOpenProgress};
pub use handshake::isn::IsnGenerator;
pub use handshake::listen::{self, ListenVerdict};
pub use handshake::opening::Cookie;
pub use handshake::syn_cookie::{COOKIE_LIFETIME, CookieEnds, SynCookies};
pub use info::TcpInfo;
pub use input::Unverified;
pub use limited::{Limit, LimitedBy};
pub use path_memory::PathMemory;
pub use path_mtu::TooBigVerdict;
pub use recovery::Phase;
pub use segment::{Ecn, Gathered, NoMemory, OutputLimit, ReceiveBuffer, SegmentIn, SegmentOut, SendBuffer};
pub use snapshot::{RestoreError, Snapshot};
pub use state::State;
pub use stats::Stats;
pub use time_wait::{TimeWait, TimeWaitVerdict};
pub use urgent::UrgentMark;
pub use verdict::{Verdict, VerdictCounters};
