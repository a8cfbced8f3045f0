//! What limits sending, and for how long: nanoseconds by reason.
//!
//! One reason holds at a time, from the moment the connection is established; so the times add up to its age. The reason is
//! decided when output has been polled until there was none, and after what a timer or an unusual segment did. It is
//! written down only when it changes: the two segments that a bulk transfer is made of cost nothing here.
//!
//! Left out: time in which the device had no room. It counts as what limited before.

use base::{Duration, Instant};

use crate::connection::Connection;
use crate::recovery::Phase;
use crate::recovery::rate::RateSample;

/// What keeps a connection from sending more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Limit {
    /// The application has queued no more; or what it queued is too little to send yet (Nagle's algorithm, `TCP_CORK`).
    #[default]
    Application = 0,
    /// The peer's window.
    PeerWindow = 1,
    /// The application would queue more, but its send buffer is full of what is sent and not acknowledged.
    SendBuffer = 2,
    /// The congestion window.
    CongestionWindow = 3,
    /// Pacing: the windows would let more go.
    Pacing = 4,
    /// A loss is being recovered.
    Recovery = 5,
}

impl Limit {
    pub(crate) const COUNT: usize = 6;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Application,
        Self::PeerWindow,
        Self::SendBuffer,
        Self::CongestionWindow,
        Self::Pacing,
        Self::Recovery,
    ];

    /// Its name, as reports show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::PeerWindow => "peer_window",
            Self::SendBuffer => "send_buffer",
            Self::CongestionWindow => "congestion_window",
            Self::Pacing => "pacing",
            Self::Recovery => "recovery",
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }
}

/// How long each reason limited a connection since it was established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy([u64; Limit::COUNT]);

impl LimitedBy {
    /// The time that one reason took.
    pub const fn time(&self, limit: Limit) -> Duration {
        Duration::from_nanos(self.0[limit as usize])
    }

    /// All reasons together: the connection's age.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.iter().fold(0, |sum, nanos| sum.saturating_add(*nanos)))
    }

    pub(crate) const fn to_nanos(self) -> [u64; Limit::COUNT] {
        self.0
    }

    pub(crate) const fn from_nanos(nanos: [u64; Limit::COUNT]) -> Self {
        Self(nanos)
    }
}

/// What is written down of an established connection, apart from what every segment touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Up to when the times are written down.
    since: Instant,
    spent: LimitedBy,
    /// The last delivery rate measured, in bytes a second, and whether the application limited it.
    pub(crate) rate: u64,
    pub(crate) rate_app_limited: bool,
}

impl Ledger {
    /// Begins at `now`, or goes on with what was `spent` before.
    pub(crate) fn starting(now: Instant, spent: LimitedBy) -> Box<Self> {
        Box::new(Self { since: now, spent, ..Self::default() })
    }

    /// Up to when the times are written down, and the times.
    pub(crate) const fn books(&self) -> (Instant, LimitedBy) {
        (self.since, self.spent)
    }

    /// As in Linux, a rate that the application limited only counts where it is the higher one.
    pub(crate) fn note_rate(&mut self, sample: &RateSample) {
        if sample.rate > 0 && (!sample.app_limited || sample.rate >= self.rate) {
            self.rate = sample.rate;
            self.rate_app_limited = sample.app_limited;
        }
    }

    fn close_span(&mut self, now: Instant, limit: Limit) {
        let spent = &mut self.spent.0[limit as usize];
        *spent = spent.saturating_add(now.saturating_since(self.since).as_nanos());
        self.since = self.since.max(now);
    }
}

impl Connection {
    /// How long each reason has limited sending up to `now`.
    pub fn limited_by(&self, now: Instant) -> LimitedBy {
        let Some(ledger) = &self.ledger else { return LimitedBy::default() };
        let mut ledger = (**ledger).clone();
        ledger.close_span(now, self.limit);
        ledger.spent
    }

    /// What limits sending at present.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Everything queued is sent, and not all of it is acknowledged: now it is for the owner to say by
    /// [`handle_send_blocked`](Self::handle_send_blocked) whether the application has no more, or no room for more.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.send.nxt >= self.send.end()
            && self.recovery.phase == Phase::Open
            && !self.send.scoreboard.is_empty()
            && self.state.sends_data()
    }

    /// Whether the application waits for room in its send buffer, of a connection that [is drained](Self::is_drained).
    pub fn handle_send_blocked(&mut self, now: Instant, blocked: bool) {
        if self.is_drained() {
            self.switch_limit(now, if blocked { Limit::SendBuffer } else { Limit::Application });
        }
    }

    /// Decides anew what limits sending.
    pub(crate) fn account(&mut self, now: Instant) {
        if let Some(limit) = self.find_limit(now) {
            self.switch_limit(now, limit);
        }
    }

    #[inline]
    pub(crate) fn switch_limit(&mut self, now: Instant, limit: Limit) {
        if limit == self.limit {
            return;
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.close_span(now, self.limit);
            self.limit = limit;
        }
    }

    /// `None`: nothing, output only has not been polled yet.
    fn find_limit(&self, now: Instant) -> Option<Limit> {
        if !self.state.sends_data() {
            return Some(Limit::Application);
        }
        if self.recovery.phase != Phase::Open || self.send.scoreboard.lost() > 0 {
            return Some(Limit::Recovery);
        }
        if self.send.nxt >= self.send.end() {
            let full = self.limit == Limit::SendBuffer && !self.send.scoreboard.is_empty();
            return Some(if full { Limit::SendBuffer } else { Limit::Application });
        }
        if self.sendable(0) > 0 {
            return self.pacing_blocks(now).then_some(Limit::Pacing);
        }
        let queued = self.send.queued.saturating_sub(self.send.nxt);
        let wanted = queued.clamp(1, u64::from(self.send.mss));
        let offered = self.send.right_edge().saturating_sub(self.send.nxt);
        let allowed = u64::from(self.congestion_allowance());
        Some(if offered >= wanted && allowed >= wanted {
            Limit::Application
        } else if offered <= allowed {
            Limit::PeerWindow
        } else {
            Limit::CongestionWindow
        })
    }
}
