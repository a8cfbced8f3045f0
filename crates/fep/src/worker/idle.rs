//! Receive memory of connections that have nothing to receive goes back.
//!
//! A connection whose application was shown bytes is watched: every [`PERIOD`] its rings are asked to give back what
//! was empty all the time. Once they hold nothing it is no longer watched. So an idle connection costs no
//! memory, and a worker whose connections are all idle is not woken for them.

use std::collections::VecDeque;

use base::{Duration, Instant};

use super::app::{Entry, LiveKind};
use super::core::Core;
use super::key::Key;

/// How long receive memory must be unused, at least; twice as long at most.
const PERIOD: Duration = Duration::from_secs(1);
/// Sockets looked at in one turn.
const BUDGET: usize = 512;

/// The sockets that hold receive memory.
#[derive(Debug, Default)]
pub(crate) struct IdleWatch {
    sockets: VecDeque<(Key, u64)>,
    /// How many of them are still to be looked at in this round.
    left: usize,
    next_round: Option<Instant>,
}

impl IdleWatch {
    /// How many sockets are watched.
    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// When the next look is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next_round
    }

    /// Watches a socket; `id` tells it from a later one of the same number.
    pub(crate) fn watch(&mut self, now: Instant, key: Key, id: u64) {
        self.sockets.push_back((key, id));
        self.next_round.get_or_insert(now + PERIOD);
    }
}

impl Core {
    /// Looks at the sockets whose turn it is.
    pub(super) fn give_back_idle(&mut self, now: Instant) {
        if self.idle.next_round.is_none_or(|round| now < round) {
            return;
        }
        if self.idle.left == 0 {
            self.idle.left = self.idle.sockets.len();
        }
        for _ in 0..self.idle.left.min(BUDGET) {
            self.idle.left -= 1;
            let Some((key, id)) = self.idle.sockets.pop_front() else { break };
            if self.holds_memory(key, id) {
                self.idle.sockets.push_back((key, id));
            }
        }
        self.idle.next_round = match (self.idle.left, self.idle.sockets.is_empty()) {
            (0, true) => None,
            (0, false) => Some(now + PERIOD),
            // The rest of the round comes in the next turn.
            (_, _) => Some(now),
        };
    }

    fn holds_memory(&mut self, key: Key, id: u64) -> bool {
        let Some(application) = self.apps.get(key.app) else { return false };
        let Entry::Live(live) = application.entry(key.socket) else { return false };
        if live.id.to_bits() != id {
            return false;
        }
        let (socket, kind) = (live.id, live.kind);
        let released = match kind {
            LiveKind::Connection => self.stack.stream(socket).is_none_or(|rings| rings.release_idle()),
            LiveKind::Udp => self.stack.datagrams(socket).is_none_or(|rings| rings.release_idle()),
            LiveKind::Bound | LiveKind::Listener => true,
        };
        if released && let Some(live) = self.apps[key.app].live(key.socket) {
            live.watched_for_idleness = false;
        }
        !released
    }
}
