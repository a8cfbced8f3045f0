//! The FEP's half: what it may believe of an application, and how it answers.
//!
//! [`AppChannel`] is the channel of one application: commands in, events and records out, wake-ups. [`StreamRings`] and
//! [`DatagramRings`] are the buffers of its sockets, owned by the stack. All of them share the segments, which stay mapped
//! until the last is dropped; so closing a channel while its connections still deliver what was sent is safe.
//!
//! Order of calls for one socket: `Owner::stream`, `assign`, then commands go to `attach_send` and `queue`; after the
//! stack worked, `publish_*` and [`AppChannel::notify`]; after the stack's last word on a closed socket,
//! [`AppChannel::release_socket`].

mod channel;
mod datagrams;
mod events;
mod lent;
mod receive;
mod segments;
mod send;
mod stream;
mod waiters;

pub use channel::AppChannel;
pub use datagrams::DatagramRings;
pub use lent::{Filling, LentFile, Reading, TakeBack};
pub use segments::{Limits, Offer, Owner};
pub use stream::StreamRings;
pub use waiters::WaiterError;
pub(crate) use waiters::{ALL as ALL_WAITERS, Bells};

/// The buffers of applications' sockets.
#[derive(Clone, Copy, Debug)]
pub struct Family;

impl stack::BufferFamily for Family {
    type Stream = StreamRings;
    type Datagrams = DatagramRings;
    type Owner = Owner;

    fn stream(owner: &Owner) -> StreamRings {
        owner.stream()
    }
}
