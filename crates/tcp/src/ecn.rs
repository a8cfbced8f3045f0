//! Explicit congestion notification: classic (RFC 3168 §6.1) and with accurate feedback (RFC 9768).
//!
//! Classic: the receiver echoes a mark in every acknowledgement until the sender says that it has reduced its window. Accurate:
//! the receiver counts marked packets, and each of its segments carries the count's last three bits (the ACE field)
//! where the two classic flags and a reserved one stand. Either way the sender reduces once for a window of data, without
//! retransmitting anything. Only new data is sent as ECN-capable: not acknowledgements, not retransmissions, not probes.
//!
//! Deviation from RFC 9768 §3.2.3: the AccECN option is not sent, and ignored when received. It tells bytes of each kind,
//! which no congestion control here asks for.
//!
//! Deviation from RFC 9768 §3.2.2.5.2: a count that may have wrapped is taken for what it says at the least. What counts
//! here is only whether there was a mark in a window of data, and the next acknowledgement shows one that this one hid.

use base::{Instant, SeqNumber};
use wire::tcp::Flags;

use crate::congestion::CongestionControl;
use crate::connection::Connection;
use crate::recovery::{AckSummary, Phase};
use crate::segment::{Ecn, SegmentIn};
use crate::state::State;

/// The three flags that negotiate, and then carry the ACE field.
pub(crate) const ACE: Flags = Flags::AE.union(Flags::CWR).union(Flags::ECE);
/// The bits of a SYN that asks for accurate feedback (RFC 9768 §3.1.1).
pub(crate) const ACCURATE_REQUEST: Flags = ACE;
/// The bits of a SYN that asks for classic feedback (RFC 3168 §6.1.1).
pub(crate) const CLASSIC_REQUEST: Flags = Flags::ECE.union(Flags::CWR);
/// Where both counters of marked packets start (RFC 9768 §3.2.1).
const INITIAL_COUNT: u8 = 5;
/// Marked packets after which an acknowledgement goes out at once (RFC 9768 §3.2.2.5.1).
const MARKS_PER_ACK: u16 = 2;

/// What both roles remember.
#[derive(Clone, Debug)]
pub(crate) struct EcnState {
    /// SND.NXT at the last reduction: echoes of what was sent before mean nothing new.
    reduced_to: SeqNumber,
    /// Marked packets received that no acknowledgement has told yet.
    untold: u16,
    /// Marked packets received, modulo 256 (r.cep).
    received: u8,
    /// Marked packets that the peer has told of, modulo 8 (s.cep).
    told: u8,
    /// The ECN field that the peer's SYN or SYN-ACK came with.
    syn_came_as: Ecn,
    /// Our acknowledgements carry ECE.
    pub(crate) echoes: bool,
    /// Accurate feedback is offered, or would be accepted; after the handshake: is in use.
    pub(crate) accurate: bool,
    facts: Facts,
}

/// A few facts in one byte.
#[derive(Clone, Copy, Debug, Default)]
struct Facts(u8);

/// One of them.
#[derive(Clone, Copy)]
enum Fact {
    /// There was a reduction.
    Reduced = 1,
    /// The next new data carries CWR.
    OwesCwr = 2,
    /// The next acknowledgement tells how the SYN-ACK came, not the count.
    OwesHandshakeFeedback = 4,
    /// The ACE field of the segment being processed is about the handshake.
    SkipsFeedback = 8,
    /// The peer's feedback is broken: nothing is sent as ECN-capable.
    Mistrusted = 16,
    /// The last data that came was marked.
    LastWasMarked = 32,
}

impl Facts {
    const fn holds(self, fact: Fact) -> bool {
        self.0 & fact as u8 != 0
    }

    const fn set(&mut self, fact: Fact, holds: bool) {
        if holds {
            self.0 |= fact as u8;
        } else {
            self.0 &= !(fact as u8);
        }
    }

    /// Whether it held; it does not any more.
    const fn take(&mut self, fact: Fact) -> bool {
        let held = self.holds(fact);
        self.set(fact, false);
        held
    }
}

/// What is kept of [`EcnState`] in a snapshot: the rest follows.
pub(crate) type EcnRecord = [u8; 3];

/// The ACE field of a number.
const fn field_of(number: u8) -> Flags {
    let mut flags = Flags::empty();
    if number & 4 != 0 {
        flags = flags.union(Flags::AE);
    }
    if number & 2 != 0 {
        flags = flags.union(Flags::CWR);
    }
    if number & 1 != 0 {
        flags = flags.union(Flags::ECE);
    }
    flags
}

/// The number in the ACE field.
fn number_in(flags: Flags) -> u8 {
    u8::from(flags.contains(Flags::AE)) << 2
        | u8::from(flags.contains(Flags::CWR)) << 1
        | u8::from(flags.contains(Flags::ECE))
}

/// How a SYN or SYN-ACK came, for its sender (RFC 9768 §3.1.2 table 2, §3.2.2.1 table 3).
pub(crate) const fn handshake_feedback(came_as: Ecn) -> Flags {
    field_of(match came_as {
        Ecn::NotEct => 0b010,
        Ecn::Ect1 => 0b011,
        Ecn::Ect0 => 0b100,
        Ecn::Ce => 0b110,
    })
}

impl EcnState {
    pub(crate) const fn new(accurate: bool) -> Self {
        Self {
            reduced_to: SeqNumber(0),
            untold: 0,
            received: INITIAL_COUNT,
            told: INITIAL_COUNT,
            syn_came_as: Ecn::NotEct,
            echoes: false,
            accurate,
            facts: Facts(0),
        }
    }

    pub(crate) fn record(&self) -> EcnRecord {
        let mistrusted = self.facts.holds(Fact::Mistrusted);
        [u8::from(self.accurate) | u8::from(mistrusted) << 1, self.received, self.told]
    }

    pub(crate) fn restored([bits, received, told]: EcnRecord) -> Self {
        let mut facts = Facts::default();
        facts.set(Fact::Mistrusted, bits & 2 != 0);
        Self { facts, received, told: told & 7, ..Self::new(bits & 1 != 0) }
    }

    /// The flags of a segment from the peer that tells nothing new.
    #[inline]
    pub(crate) fn quiet_flags(&self) -> Flags {
        if self.accurate { Flags::ACK | field_of(self.told) } else { Flags::ACK }
    }

    /// Unmarked data came.
    #[inline]
    pub(crate) fn note_unmarked(&mut self) {
        self.facts.set(Fact::LastWasMarked, false);
    }

    /// The first acknowledgement, about the SYN-ACK, must travel alone: behind it the field means the count.
    pub(crate) fn owes_handshake_feedback(&self) -> bool {
        self.facts.holds(Fact::OwesHandshakeFeedback)
    }

    /// A device that cuts super-segments clears CWR in all pieces but the first (RFC 3168 §6.1.2), which is a part of the
    /// count here: while the bit is set, nothing may be cut.
    pub(crate) fn forbids_cutting(&self) -> bool {
        self.accurate && self.received & 2 != 0
    }
}

impl Connection {
    /// What the peer's SYN or SYN-ACK says about ECN. Beforehand `settings.ecn` and `ecn.accurate` are what we offered or
    /// would accept, afterwards what is in use.
    pub(crate) fn negotiate_ecn(&mut self, segment: &SegmentIn<'_>) {
        let bits = segment.header.flags.intersection(ACE);
        let willing = self.settings.ecn && self.ecn.accurate;
        let classic;
        if segment.header.flags.contains(Flags::ACK) {
            // RFC 9768 §3.1.2 table 2. All three reflected, as all of none, means no ECN; 001 and 101 are classic.
            let number = number_in(bits);
            self.ecn.accurate = willing && matches!(number, 0b010 | 0b011 | 0b100 | 0b110);
            classic = if willing { matches!(number, 0b001 | 0b101) } else { number & 0b011 == 0b001 };
            self.ecn.facts.set(Fact::OwesHandshakeFeedback, self.ecn.accurate);
        } else {
            // §3.1.3: bits that nobody knows yet are answered like a request for accurate feedback.
            self.ecn.accurate = willing && !bits.is_empty() && bits != CLASSIC_REQUEST;
            classic = bits.contains(CLASSIC_REQUEST);
        }
        self.settings.ecn &= self.ecn.accurate || classic;
        self.ecn.syn_came_as = segment.ecn;
        if self.ecn.accurate && segment.ecn == Ecn::Ce && segment.header.flags.contains(Flags::ACK) {
            self.ecn.received += 1;
        }
    }

    /// Our SYN or SYN-ACK goes out for the `transmissions`th time: something on the way may dislike the flags.
    ///
    /// A classic SYN goes without them at once (RFC 3168 §6.1.1.1), an accurate SYN or SYN-ACK is tried once more with them
    /// (RFC 9768 §3.1.4.1, §3.2.3.2.2). A server that has left them out keeps giving accurate feedback, but sends nothing as
    /// ECN-capable.
    pub(crate) fn fall_back_from_ecn(&mut self, transmissions: u8) {
        let once_more = self.ecn.accurate && transmissions <= 2;
        if self.state == State::SynSent {
            self.settings.ecn &= once_more;
        } else if self.ecn.accurate && !once_more {
            self.ecn.facts.set(Fact::Mistrusted, true);
        }
    }

    /// The flags of our SYN or SYN-ACK.
    pub(crate) fn ecn_of_syn(&self, answers: bool) -> Flags {
        match (self.settings.ecn, answers, self.ecn.accurate) {
            (false, _, _) => Flags::empty(),
            (true, true, true) if self.ecn.facts.holds(Fact::Mistrusted) => Flags::empty(),
            (true, false, false) => CLASSIC_REQUEST,
            (true, false, true) => ACCURATE_REQUEST,
            (true, true, false) => Flags::ECE,
            (true, true, true) => handshake_feedback(self.ecn.syn_came_as),
        }
    }

    /// The flags of any other segment.
    pub(crate) fn ecn_of_segment(&mut self, flags: Flags) -> Flags {
        if self.settings.ecn && self.ecn.accurate {
            self.ecn.untold = 0;
            return if self.ecn.facts.take(Fact::OwesHandshakeFeedback) {
                handshake_feedback(self.ecn.syn_came_as)
            } else {
                field_of(self.ecn.received)
            };
        }
        if self.ecn.echoes && flags.contains(Flags::ACK) { Flags::ECE } else { Flags::empty() }
    }

    /// The first acknowledgement of our SYN-ACK (RFC 9768 §3.2.2.1 table 4).
    pub(crate) fn on_handshake_feedback(&mut self, segment: &SegmentIn<'_>) {
        if !self.ecn.accurate {
            return;
        }
        self.ecn.facts.set(Fact::SkipsFeedback, true);
        match number_in(segment.header.flags) {
            // §3.2.2.3: something on the way clears the field.
            0b000 => self.ecn.facts.set(Fact::Mistrusted, true),
            0b110 => self.ecn.told = INITIAL_COUNT + 1,
            _ => {}
        }
    }

    /// Receiver: a mark is counted, or begins the echo that CWR ends (RFC 3168 §6.1.3).
    pub(crate) fn on_ecn_of_data(&mut self, segment: &SegmentIn<'_>) {
        if !self.settings.ecn {
            return;
        }
        let marked = segment.ecn == Ecn::Ce;
        let has_data = !segment.payload.is_empty();
        if self.ecn.accurate {
            self.count_marks(segment, marked, has_data);
            return;
        }
        if !has_data {
            return;
        }
        if segment.header.flags.contains(Flags::CWR) {
            self.ecn.echoes = false;
        }
        if marked {
            self.stats.rare().congestion_marks += 1;
            self.ecn.echoes = true;
        }
    }

    fn count_marks(&mut self, segment: &SegmentIn<'_>, marked: bool, has_data: bool) {
        if marked {
            let count = segment.segment_count.max(1);
            self.stats.rare().congestion_marks += u32::from(count);
            self.ecn.received = self.ecn.received.wrapping_add(count as u8);
            self.ecn.untold = self.ecn.untold.saturating_add(count);
            // RFC 9768 §3.2.2.5.1: at once when marking begins, and before the count could wrap.
            if has_data && (!self.ecn.facts.holds(Fact::LastWasMarked) || self.ecn.untold >= MARKS_PER_ACK) {
                self.pending.ack = true;
            }
        }
        if has_data {
            self.ecn.facts.set(Fact::LastWasMarked, marked);
        }
    }

    /// Sender: feedback reduces the window, once for a window of data (RFC 3168 §6.1.2, as RFC 9768 §3.3 leaves it).
    pub(crate) fn on_ecn_of_ack(&mut self, now: Instant, segment: &SegmentIn<'_>, summary: &AckSummary) {
        if !self.settings.ecn {
            return;
        }
        let told = if self.ecn.accurate {
            self.newly_told(segment, summary) > 0
        } else {
            segment.header.flags.contains(Flags::ECE)
        };
        if !told || self.is_reducing() || self.send.una + u64::from(summary.advanced) <= 1 {
            return;
        }
        self.stats.rare().congestion_echoes += 1;
        self.ecn.facts.set(Fact::Reduced, true);
        self.ecn.reduced_to = self.send.seq(self.send.nxt.max(self.send.una + 1));
        self.ecn.facts.set(Fact::OwesCwr, !self.ecn.accurate);
        if self.recovery.phase == Phase::Open {
            let mss = u32::from(self.send.mss);
            let flight = self.flight_size(summary.advanced);
            self.congestion.on_loss_found(now, flight, mss);
            let pipe = self.pipe();
            self.congestion.on_recovered(now, pipe, mss);
        }
    }

    /// The window has been reduced for a mark, and nothing sent since then is acknowledged: the peer cannot have seen CWR, and
    /// what it tells is of the same window of data.
    pub(crate) fn is_reducing(&self) -> bool {
        self.ecn.facts.holds(Fact::Reduced) && !self.ecn.reduced_to.before(self.send.seq(self.send.una))
    }

    /// How many marks an acknowledgement tells of that none before it did, at the least.
    fn newly_told(&mut self, segment: &SegmentIn<'_>, summary: &AckSummary) -> u32 {
        let skip = self.ecn.facts.take(Fact::SkipsFeedback);
        // One that delivers nothing may be an old one that was overtaken.
        if skip || summary.delivered == 0 {
            return 0;
        }
        let number = number_in(segment.header.flags);
        let told = u32::from(number.wrapping_sub(self.ecn.told) & 7);
        self.ecn.told = number;
        if told > 0 {
            self.stats.rare().marks_told += told;
        }
        told
    }

    /// The IP header's field, and CWR if it is owed, for new data.
    pub(crate) fn ecn_for_new_data(&mut self) -> (Ecn, Flags) {
        if !self.settings.ecn || self.ecn.facts.holds(Fact::Mistrusted) {
            return (Ecn::NotEct, Flags::empty());
        }
        let flags = if self.ecn.facts.take(Fact::OwesCwr) { Flags::CWR } else { Flags::empty() };
        (Ecn::Ect0, flags)
    }
}
