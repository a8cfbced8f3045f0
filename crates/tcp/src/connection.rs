//! One connection: its state, how it is made, and what its owner can tell it and ask of it.
//!
//! Input is in `input/`, output in `output/`, timers' consequences in `deadline.rs`.

use core::net::SocketAddr;

use base::{Duration, Instant, SeqNumber};

use crate::challenge_ack::ChallengeLimit;
use crate::config::{AccurateEcn, Config};
use crate::congestion::Congestion;
use crate::ecn::EcnState;
use crate::error::{Error, IcmpError};
use crate::handshake::fast_open::FastOpenProgress;
use crate::handshake::negotiate;
use crate::handshake::opening::Opening;
use crate::limited::{Ledger, Limit};
use crate::output::Pending;
use crate::path_mtu::Search;
use crate::recovery::Recovery;
use crate::recovery::rtt::RoundTrip;
use crate::recv::Receiver;
use crate::segment::{Endpoints, Position, SegmentIn};
use crate::send::Sender;
use crate::send::scoreboard::Scoreboard;
use crate::settings::Settings;
use crate::state::{Action, Event, State};
use crate::stats::Counters;
use crate::timer::{Stamp, Timer, Timers};
use crate::urgent::Urgent;

/// One TCP connection, without clock, randomness, buffers or addresses of anybody.
///
/// The owner's loop: give received segments to [`handle_segment`](Self::handle_segment), the application's progress to
/// [`handle_send`](Self::handle_send) and [`handle_consumed`](Self::handle_consumed), the passing of
/// [`deadline`](Self::deadline) to [`handle_deadline`](Self::handle_deadline); after any of these, while
/// [`wants_output`](Self::wants_output), call [`poll_segment`](Self::poll_segment) until it gives nothing, then read
/// the getters and the deadline again. Stream offsets count payload bytes from 0 and never wrap.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) ends: Endpoints,
    pub(crate) send: Sender,
    pub(crate) recv: Receiver,
    pub(crate) recovery: Recovery,
    pub(crate) rtt: RoundTrip,
    pub(crate) congestion: Congestion,
    pub(crate) timers: Timers,
    pub(crate) pending: Pending,
    pub(crate) settings: Settings,
    pub(crate) challenges: ChallengeLimit,
    pub(crate) ecn: EcnState,
    /// Only while a larger segment size is searched for, or may be later.
    pub(crate) search: Option<Box<Search>>,
    pub(crate) stats: Counters,
    /// Once there was urgent data.
    pub(crate) urgent: Option<Box<Urgent>>,
    /// From when it is established.
    pub(crate) ledger: Option<Box<Ledger>>,
    /// What only matters while it is being opened in a special way.
    pub(crate) opening: Option<Box<Opening>>,
    /// When a segment was last received.
    pub(crate) heard_at: Stamp,
    /// When data was last sent.
    pub(crate) sent_at: Stamp,
    /// When pacing lets the next data go.
    pub(crate) paced_until: Instant,
    pub(crate) state: State,
    /// What limits sending.
    pub(crate) limit: Limit,
    pub(crate) error: Option<Error>,
    /// An ICMP error that may pass (RFC 5461): reported if the connection times out.
    pub(crate) soft_error: Option<Error>,
    /// How far fast open has got.
    pub(crate) fast_open: FastOpenProgress,
    /// It was opened by a peer's SYN.
    pub(crate) passive: bool,
    /// The owner has closed: nobody will read any more.
    pub(crate) orphaned: bool,
    /// The other end is on the same stack: nothing of it goes by segments.
    pub(crate) cut_through: bool,
}

/// The most bytes that an idle connection may take (ARCHITECTURE: 100,000 idle connections under 1 KiB each).
pub const MAX_SIZE: usize = 704;
const _: () = assert!(size_of::<Connection>() <= MAX_SIZE);

impl Connection {
    /// An active open: SYN-SENT. The SYN goes out at the next poll.
    ///
    /// `isn` and `timestamp_offset` come from [`crate::IsnGenerator`].
    pub fn connect(
        now: Instant,
        config: &Config,
        local: SocketAddr,
        remote: SocketAddr,
        isn: SeqNumber,
        timestamp_offset: u32,
    ) -> Self {
        Self::new(now, config, (local, remote), isn, timestamp_offset, State::SynSent)
    }

    /// A passive open by `syn`, which [`crate::handshake::listen::classify`] accepted: SYN-RECEIVED. The SYN-ACK goes
    /// out at the next poll.
    pub fn accept(
        now: Instant,
        config: &Config,
        local: SocketAddr,
        remote: SocketAddr,
        isn: SeqNumber,
        timestamp_offset: u32,
        syn: &SegmentIn<'_>,
    ) -> Self {
        let mut connection =
            Self::new(now, config, (local, remote), isn, timestamp_offset, State::SynReceived);
        connection.passive = true;
        connection.defer_acceptance(config);
        connection.on_peer_syn(now, syn);
        connection
    }

    fn new(
        now: Instant,
        config: &Config,
        (local, remote): (SocketAddr, SocketAddr),
        isn: SeqNumber,
        timestamp_offset: u32,
        state: State,
    ) -> Self {
        let mut settings = Settings::new(config, timestamp_offset);
        let passive = state == State::SynReceived;
        settings.ecn |= passive && config.accept_ecn;
        let accurate = match config.accurate_ecn {
            AccurateEcn::Off => false,
            AccurateEcn::Accept => passive,
            AccurateEcn::Offer => true,
        };
        let scale = negotiate::window_scale_for(config.window_limit);
        let mut recovery = Recovery::new();
        recovery.progress_at = now;
        let initial = u32::from(config.mss);
        let mut connection = Self {
            ends: Endpoints::new(local, remote),
            send: Sender::new(isn, config.mss.max(negotiate::MIN_MSS)),
            recv: Receiver::new(config.initial_window, config.window_limit, scale),
            recovery,
            rtt: RoundTrip::new(),
            congestion: Congestion::new(config.congestion, initial),
            timers: Timers::new(),
            pending: Pending::new(),
            settings,
            challenges: ChallengeLimit::new(),
            ecn: EcnState::new(accurate),
            search: None,
            urgent: None,
            stats: Counters::new(now),
            ledger: None,
            opening: None,
            heard_at: Stamp::at(now),
            sent_at: Stamp::at(now),
            paced_until: Instant::ZERO,
            state,
            limit: Limit::default(),
            error: None,
            soft_error: None,
            fast_open: FastOpenProgress::Unused,
            passive: false,
            orphaned: false,
            cut_through: false,
        };
        connection.recall(config.remembered.as_ref(), initial);
        connection
    }

    /// The application has queued the stream's bytes up to the offset `queued_to`. Ignored after a shutdown, and where
    /// it goes back.
    pub fn handle_send(&mut self, queued_to: u64) {
        let queued = queued_to.saturating_add(1);
        if !self.send.fin_queued && queued > self.send.queued && self.state != State::Closed {
            self.send.queued = queued;
            self.pending.more = false;
        }
    }

    /// As [`handle_send`](Self::handle_send), and the application says that more follows at once (`MSG_MORE`): less than a
    /// full segment waits for that, for an acknowledgement, or 200 ms.
    pub fn handle_send_more(&mut self, queued_to: u64) {
        let before = self.send.queued;
        self.handle_send(queued_to);
        self.pending.more = self.send.queued > before;
    }

    /// The application has read the stream up to the offset `consumed_to`: the window opens. A value beyond what was
    /// received is taken as everything.
    pub fn handle_consumed(&mut self, now: Instant, consumed_to: u64) {
        let consumed = consumed_to.saturating_add(1).min(self.recv.data_end());
        if consumed <= self.recv.consumed {
            return;
        }
        self.recv.consumed = consumed;
        let (limit, max_limit) = (self.recv.limit, self.recv.max_limit);
        let round_trip = match self.recv.round_trip.get() {
            Duration::ZERO => self.rtt.srtt,
            measured => measured,
        };
        self.recv.limit = self.recv.autotune.on_consumed(now, consumed, round_trip, limit, max_limit);
        if self.state.receives_data() && !self.cut_through && self.recv.update_is_due() {
            self.pending.ack = true;
        }
    }

    /// The owner sends no more: a FIN follows what is queued (`shutdown(SHUT_WR)`).
    pub fn handle_shutdown(&mut self) {
        self.on_event(Event::Shutdown);
    }

    /// The owner lets go for good (`close`): it reads no more, and a FIN follows what is queued. Received data that was
    /// not read, or that comes later, resets the connection (RFC 1122 §4.2.2.13).
    pub fn handle_close(&mut self, now: Instant) {
        self.orphaned = true;
        if self.recv.consumed < self.recv.data_end() || self.state == State::SynSent {
            self.on_event(Event::Abort);
            return;
        }
        self.on_event(Event::Shutdown);
        if self.state == State::FinWait2 {
            self.start_linger(now);
        }
        if self.cut_through {
            self.start_patience(now);
        }
    }

    /// The owner gives up at once: a reset (`SO_LINGER` of zero).
    pub fn handle_abort(&mut self) {
        self.on_event(Event::Abort);
    }

    /// In TIME-WAIT: a new connection takes the place of this one (RFC 1122 §4.2.2.13).
    pub fn handle_succeeded(&mut self) {
        self.on_event(Event::LingerExpired);
    }

    /// An ICMP error that quotes a segment with the sequence number `seq`. Returns false if the number is not in
    /// flight: then it is an old or a forged one and means nothing (RFC 5927 §4.1).
    pub fn handle_icmp_error(&mut self, error: IcmpError, seq: SeqNumber) -> bool {
        let in_flight = seq.within(self.send.seq(self.send.una), self.send.outstanding() as u32);
        if !in_flight || self.state == State::Closed {
            return false;
        }
        match self.state {
            // RFC 5927 §5: hard errors end a connection only while it is being opened.
            State::SynSent | State::SynReceived if error.ends_opening() => {
                self.error = Some(error.as_error());
                self.on_event(Event::ResetReceived);
            }
            State::Closed
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.soft_error = Some(error.as_error()),
        }
        true
    }

    /// Applies an event to the state and does what the transition asks for. Returns whether it meant anything.
    pub(crate) fn on_event(&mut self, event: Event) -> bool {
        let Some(transition) = self.state.on(event) else { return false };
        self.state = transition.state;
        match transition.action {
            Action::Nothing => {}
            Action::SendSynAck => self.repeat_syn(),
            Action::SendAck => self.pending.ack = true,
            Action::Open => {}
            Action::QueueFin => self.send.fin_queued = true,
            Action::SendReset => {
                self.pending.reset = true;
                self.release(Error::Aborted);
            }
            // A FIN is acknowledged by the step that processes it; the acknowledgement of ours is not answered.
            Action::StartTimeWait => {}
            Action::Release => {
                if event == Event::Abort {
                    self.error.get_or_insert(Error::Aborted);
                }
                self.release_memory();
            }
        }
        true
    }

    fn release(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.release_memory();
    }

    /// The connection is closed: no timer, no heap.
    fn release_memory(&mut self) {
        self.timers.clear_all();
        self.recv.reassembly = None;
        self.search = None;
        self.opening = None;
        self.send.scoreboard = Scoreboard::new();
        self.pending.ack = false;
        self.pending.probe = false;
        self.recovery.probe.due = false;
    }

    /// The peer no longer answers.
    pub(crate) fn on_timed_out(&mut self) {
        self.error = Some(self.soft_error.unwrap_or(Error::TimedOut));
        self.on_event(Event::TimedOut);
    }

    /// FIN-WAIT-2 without an owner, or TIME-WAIT, lasts from now. An owner who wants none of the first leaves by a reset.
    pub(crate) fn start_linger(&mut self, now: Instant) {
        if self.state == State::FinWait2 && self.settings.fin_wait_2_ms == 0 {
            self.on_event(Event::Abort);
            return;
        }
        let wait = match self.state {
            State::TimeWait => self.settings.time_wait_ms,
            State::Closed
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.settings.fin_wait_2_ms,
        };
        self.timers.set(Timer::Linger, now + base::Duration::from_millis(wait.into()));
    }

    /// Our timestamp clock: milliseconds, from an offset that nobody knows (RFC 7323 §5.4).
    #[inline]
    pub(crate) fn timestamp(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.settings.timestamp_offset)
    }

    /// The effective MSS follows from the path, the peer's announcement and the options of every segment
    /// (RFC 9293 §3.7.1, RFC 6691).
    pub(crate) fn on_mss_changed(&mut self) {
        let options = if self.settings.timestamps { 12 } else { 0 };
        let largest = self.send.path_mss.min(self.send.peer_mss);
        self.send.mss = largest.saturating_sub(options).max(negotiate::MIN_MSS - 12);
    }

    /// The stream offset of a send position.
    pub(crate) fn offset_of(position: Position) -> u64 {
        position.saturating_sub(1)
    }

    /// The laws that hold between any two calls; for tests and simulators.
    ///
    /// # Errors
    /// The law that is broken, in words.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let (send, recv) = (&self.send, &self.recv);
        let closed = self.state == State::Closed;
        let laws = [
            (send.una <= send.nxt && send.nxt <= send.end().max(1), "SND.UNA <= SND.NXT <= what is queued"),
            (closed || send.scoreboard.is_consistent(send.una, send.nxt), "records cover what is in flight"),
            (recv.consumed <= recv.data_end().max(1), "no more is read than was received"),
            (recv.nxt <= recv.right_edge || recv.right_edge == 0, "nothing is received beyond the window"),
            (
                send.scoreboard.is_empty()
                    || self.timers.is_set(Timer::Retransmit)
                    || self.state == State::Closed,
                "the retransmission timer runs while anything is in flight",
            ),
            (!closed || self.timers.next().is_none(), "no timer outlives the connection"),
            (send.fin_acknowledged() || self.state != State::TimeWait, "TIME-WAIT comes after the FIN"),
        ];
        laws.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, law)| Err(law))
    }
}
