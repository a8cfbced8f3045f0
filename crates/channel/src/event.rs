//! What the FEP tells the application: the entries of the event ring.

use crate::layout::EVENT_WORDS;

/// An event. It only says where to look: what is so stands in the socket's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The readiness of a watched socket may have changed. Not repeated while the previous one is unread.
    Ready {
        /// The socket.
        socket: u32,
    },
    /// A listener has a new connection; its state and addresses are published.
    Accepted {
        /// The listener.
        listener: u32,
        /// The connection's socket, from the FEP's half of the numbers.
        socket: u32,
    },
    /// A closed socket is gone: all sent data is acknowledged or given up. Its number can be used again.
    Released {
        /// The socket.
        socket: u32,
    },
}

const READY: u64 = 1;
const ACCEPTED: u64 = 2;
const RELEASED: u64 = 3;

impl Event {
    pub(crate) fn encode(self) -> [u64; EVENT_WORDS] {
        let (kind, socket, argument) = match self {
            Self::Ready { socket } => (READY, socket, 0),
            Self::Accepted { listener, socket } => (ACCEPTED, listener, u64::from(socket)),
            Self::Released { socket } => (RELEASED, socket, 0),
        };
        [kind | u64::from(socket) << 32, argument]
    }

    pub(crate) fn decode(words: [u64; EVENT_WORDS], sockets: u32) -> Option<Self> {
        let (socket, argument) = ((words[0] >> 32) as u32, words[1] as u32);
        if socket >= sockets || argument >= sockets {
            return None;
        }
        match words[0] & 0xffff_ffff {
            READY => Some(Self::Ready { socket }),
            ACCEPTED => Some(Self::Accepted { listener: socket, socket: argument }),
            RELEASED => Some(Self::Released { socket }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_ring() {
        for event in [
            Event::Ready { socket: 7 },
            Event::Accepted { listener: 3, socket: 9 },
            Event::Released { socket: 0 },
        ] {
            assert_eq!(Event::decode(event.encode(), 10), Some(event));
        }
        assert_eq!(Event::decode(Event::Ready { socket: 10 }.encode(), 10), None);
        assert_eq!(Event::decode([9, 0], 10), None);
    }
}
