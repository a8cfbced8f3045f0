//! Wake-ups that wait for a pause in the traffic: those of readers who asked for that.
//!
//! A bulk reader sleeps until much has come. It cannot know when the peer pauses, so the worker tells it.

use base::{Duration, Instant};

use super::core::Core;
use super::key::Key;

/// Nothing done for so long is a pause.
const PAUSE: Duration = Duration::from_micros(100);
/// A wake-up is withheld for so long at most, pause or none: what a reader waits for comes in less at 2 Gbit/s.
const WITHHOLD: Duration = Duration::from_millis(4);

/// Readers who want to be woken when nothing more comes.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    sockets: Vec<Key>,
    since: Option<Instant>,
    /// The last turn in which there was something to do.
    busy_at: Option<Instant>,
}

impl Withheld {
    /// When they are woken if nothing happens until then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let since = self.since?;
        Some(self.busy_at.map_or(since, |busy_at| busy_at + PAUSE).min(since + WITHHOLD))
    }
}

impl Core {
    /// The reader of a socket is woken in the next pause.
    pub(super) fn withhold(&mut self, now: Instant, key: Key) {
        let Some(live) = self.apps.get(key.app).and_then(|application| application.live(key.socket)) else {
            return;
        };
        if !std::mem::replace(&mut live.withheld, true) {
            self.withheld.sockets.push(key);
            self.withheld.since.get_or_insert(now);
        }
    }

    /// There was something to do in this turn.
    pub(super) fn note_busy(&mut self, now: Instant) {
        self.withheld.busy_at = Some(now);
    }

    /// Wakes the withheld readers if this is a pause, or they have waited for long enough.
    pub(super) fn wake_withheld(&mut self, now: Instant) {
        if self.withheld.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.withheld.since = None;
        while let Some(key) = self.withheld.sockets.pop() {
            let Some(application) = self.apps.get(key.app) else { continue };
            if let Some(live) = application.live(key.socket) {
                live.withheld = false;
                application.channel.notify_pause(key.socket);
            }
        }
    }
}
