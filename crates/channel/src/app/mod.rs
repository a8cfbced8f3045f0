//! The application's half: what a socket library builds its sockets on.
//!
//! [`Channel`] is shared by all threads: it posts commands, drains events, gives out socket numbers, ring memory and waiter
//! slots. A socket's [`Record`] shows what the FEP published. [`SendStream`], [`ReceiveStream`], [`SendDatagrams`] and
//! [`ReceiveDatagrams`] each own one direction of a socket and are used by one thread at a time (the library locks).
//!
//! CLOSE is posted when nobody uses the socket's sides any more; from then on they may only be dropped. (After RELEASED the
//! number may name another socket, whose cursors they would move.) Ring memory stays leased until RELEASED by itself.
//!
//! To sleep: name the waiter's slot in the record, `prepare` the [`Waiter`], look at the condition once more, `sleep`.
//!
//! The FEP is trusted here, as a kernel would be; still, what it says is checked where a fault of it would make this
//! process read outside of its memory.

mod attach;
mod channel;
mod offer;
mod receive;
mod receive_datagrams;
mod record;
mod rings;
mod send;
mod send_datagrams;
mod waiter;

pub use attach::ConnectError;
pub use channel::{Channel, Closure};
pub use offer::{Offered, Offers};
pub use receive::{Available, ReceiveStream};
pub use receive_datagrams::{Datagram, ReceiveDatagrams};
pub use record::Record;
pub use send::SendStream;
pub use send_datagrams::{DatagramManner, SendDatagrams};
pub use waiter::Waiter;
