//! The non-blocking core: one [`Socket`] type over the channel, and what it takes to wait for many of them.
//!
//! Nothing here waits except [`Socket::wait`]. Errors carry the `errno` that Linux gives
//! (`io::Error::raw_os_error`), a call that cannot go on fails with `EAGAIN`.
//!
//! Reading order: [`Socket`] (opening, connecting, closing), `sides` ([`Sender`] and [`Receiver`], the data paths),
//! `readiness` (what a socket is ready for, and the marks that decide when the stack rings), [`Waiter`] (sleeping),
//! `unsent` (`TCP_NOTSENT_LOWAT`), `bulk` (sleeping longer while much comes in), [`Patience`] (spinning), `kin` (sockets
//! that forked processes share).

mod bulk;
mod datagram;
mod errors;
mod kin;
mod lend;
mod patience;
mod readiness;
mod sides;
mod socket;
mod types;
mod unsent;
mod urgent;
mod waiter;

pub use channel::app::DatagramManner as DatagramOptions;
/// Fewer bytes of a lent file than this are copied.
pub use channel::layout::MIN_FILL;
pub use channel::{Manner, Stamp};
pub(crate) use lend::Lender;
pub use lend::LentFile;
pub use patience::Patience;
pub(crate) use sides::Sending;
pub use sides::{Receiver, Sender};
pub use socket::{Observer, Socket};
pub use stack::{ErrorOrigin, MtuDiscovery, QueuedError};
pub use types::{Datagram, Interest, Options, Readiness, SocketOption};
pub use waiter::{Waiter, spin};
