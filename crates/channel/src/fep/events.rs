//! Events to the application: nothing is lost when the ring is full, and READY is not repeated while it is unread.

use std::collections::VecDeque;

use ring::{Producer, PushError};

use crate::layout::EVENT_WORDS;
use crate::memory::Outgoing;
use crate::{Event, Offence};

/// Where a socket's last event of a kind is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// There is none, or it is read.
    #[default]
    Read,
    /// It waits for room in the ring.
    Waiting,
    /// In the ring, at this position.
    At(u64),
}

/// Of one socket number.
#[derive(Clone, Copy, Debug, Default)]
struct LastEvents {
    ready: Last,
    released: Last,
}

/// The event ring with what does not fit into it.
#[derive(Debug)]
pub(super) struct Events {
    ring: Producer<Outgoing<EVENT_WORDS>>,
    /// Bounded: a READY, an ACCEPTED and a RELEASED for each socket at most, since a number is not used again before
    /// its RELEASED is read.
    waiting: VecDeque<Event>,
    sockets: Vec<LastEvents>,
    /// RELEASED events in the ring, oldest first, of numbers that the FEP gives.
    released: VecDeque<(u64, u32)>,
    first_accepted: u32,
    /// Events that were ever put into the ring.
    pub(super) posted: u64,
}

impl Events {
    pub(super) fn new(memory: Outgoing<EVENT_WORDS>, first_accepted: u32) -> Self {
        Self {
            ring: Producer::new(memory),
            waiting: VecDeque::new(),
            sockets: Vec::new(),
            released: VecDeque::new(),
            first_accepted,
            posted: 0,
        }
    }

    /// Posts an event that is posted once.
    pub(super) fn post(&mut self, event: Event) -> Result<(), Offence> {
        if self.waiting.is_empty() && self.try_push(event)? {
            self.ring.publish();
        } else {
            self.waiting.push_back(event);
        }
        Ok(())
    }

    /// Posts READY unless the last one is unread. What it announces was published, and a full fence passed, before.
    pub(super) fn post_ready(&mut self, socket: u32) -> Result<(), Offence> {
        let unread = self.is_unread(self.last(socket).ready)?;
        if unread {
            return Ok(());
        }
        self.last_mut(socket).ready = Last::Waiting;
        self.post(Event::Ready { socket })
    }

    /// Posts RELEASED.
    pub(super) fn post_released(&mut self, socket: u32) -> Result<(), Offence> {
        *self.last_mut(socket) = LastEvents { ready: Last::Read, released: Last::Waiting };
        self.post(Event::Released { socket })
    }

    /// Whether the application has read the last RELEASED of a number, if there was one.
    pub(super) fn is_release_read(&mut self, socket: u32) -> Result<bool, Offence> {
        Ok(!self.is_unread(self.last(socket).released)?)
    }

    /// Whether there are events that do not fit into the ring.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Moves into the ring what waited for room.
    pub(super) fn flush(&mut self) -> Result<(), Offence> {
        while let Some(&event) = self.waiting.front() {
            if !self.try_push(event)? {
                break;
            }
            self.waiting.pop_front();
        }
        self.ring.publish();
        Ok(())
    }

    /// The number of the oldest RELEASED that the application has read: it may be used again.
    pub(super) fn take_released(&mut self) -> Result<Option<u32>, Offence> {
        let Some(&(position, socket)) = self.released.front() else { return Ok(None) };
        if position >= self.consumed()? {
            return Ok(None);
        }
        self.released.pop_front();
        Ok(Some(socket))
    }

    fn consumed(&mut self) -> Result<u64, Offence> {
        self.ring.consumed().map_err(|_| Offence::EventIndex)
    }

    /// Whether the event is in the ring now.
    fn try_push(&mut self, event: Event) -> Result<bool, Offence> {
        let position = match self.ring.push(event.encode()) {
            Ok(position) => position,
            Err(PushError::Full) => return Ok(false),
            Err(PushError::Corrupt) => return Err(Offence::EventIndex),
        };
        self.posted += 1;
        match event {
            Event::Ready { socket } => self.last_mut(socket).ready = Last::At(position),
            Event::Released { socket } => {
                self.last_mut(socket).released = Last::At(position);
                if socket >= self.first_accepted {
                    self.released.push_back((position, socket));
                }
            }
            Event::Accepted { .. } => {}
        }
        Ok(true)
    }

    fn is_unread(&mut self, last: Last) -> Result<bool, Offence> {
        Ok(match last {
            Last::Read => false,
            Last::Waiting => true,
            Last::At(position) => position >= self.consumed()?,
        })
    }

    fn last(&self, socket: u32) -> LastEvents {
        self.sockets.get(socket as usize).copied().unwrap_or_default()
    }

    fn last_mut(&mut self, socket: u32) -> &mut LastEvents {
        let index = socket as usize;
        if index >= self.sockets.len() {
            self.sockets.resize(index + 1, LastEvents::default());
        }
        &mut self.sockets[index]
    }
}
