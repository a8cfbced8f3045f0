//! Connections whose two ends are both on this stack: no segments, one copy from ring to ring.
//!
//! The handshake is TCP's own, so that a listener's queues, limits and options mean what they always do; its three segments
//! pass from end to end as values, without packets. When it has left both ends ESTABLISHED with nothing in flight they
//! are joined ([`tcp::cut_through`]), and an end that has output is served here from then on. Whatever does not fit this
//! (fast open, SYN cookies, acceptance put off until data come, a simultaneous open, a connection to itself, ends that an
//! older connection still holds) goes as segments through the queue to ourselves, as ICMP and everything else does.
//!
//! A turn moves bytes both ways, since the one who reads makes room for the other one. It is bounded as every turn is. A
//! closed window needs no timer: the application that reads tells the stack (`consume_notify_at`), and the stack looks at the
//! partner. Where a receive buffer found no memory, it is tried again after [`RETRY`].

use base::{Duration, Instant};
use tcp::cut_through::{Carried, Stop, carry, join};

use super::Glance;
use crate::SocketId;
use crate::buffers::BufferFamily;
use crate::flow::{FourTuple, Target};
use crate::interface::InterfaceId;
use crate::socket::{OutputPlace, Partner, Stage};
use crate::stack::Stack;
use crate::transmit::{Budget, Turn};

/// When bytes for which there was no memory are tried again.
const RETRY: Duration = Duration::from_millis(5);

impl<B: BufferFamily> Stack<B> {
    /// A connection's turn on the way to ourselves. `None`: it goes by segments.
    pub(crate) fn cut_through(&mut self, now: Instant, index: u32, budget: &mut Budget) -> Option<Turn> {
        let tcp = self.sockets.get_index(index)?.tcp()?;
        match tcp.partner {
            Partner::Joined(partner) => Some(self.exchange(now, index, partner, budget)),
            Partner::Gone => {
                self.with_tcp(now, index, tcp::Connection::handle_partner_gone);
                Some(Turn::Done)
            }
            Partner::Remote
                if tcp.connection.state() == tcp::State::SynSent
                    && tcp.connection.fast_open() == tcp::FastOpenProgress::Unused =>
            {
                budget.spend(1, 0);
                self.meet(now, index)
            }
            Partner::Remote => None,
        }
    }

    /// A connection attempt that has just been made goes to a listener of this stack at once, and not when output is next asked
    /// for. Does nothing where the peer is elsewhere, or where the handshake goes by segments.
    pub fn tcp_meet(&mut self, now: Instant, id: SocketId) {
        let Some(socket) = self.sockets.get(id.into()) else { return };
        if socket.place != OutputPlace::Unrouted {
            return;
        }
        let index = id.index;
        self.leave_output(index);
        let Some(interface) = self.tcp_interface(now, index) else { return };
        let mut budget = Budget { frames: 1, turn_frames: 1, turn_bytes: 0 };
        if interface != InterfaceId::LOOPBACK || self.cut_through(now, index, &mut budget).is_none() {
            self.join_round(index, interface);
        }
    }

    /// Opens a connection to a listener of this stack.
    fn meet(&mut self, now: Instant, index: u32) -> Option<Turn> {
        let tuple = self.sockets.get_index(index)?.tcp()?.tuple();
        let reverse = FourTuple { local: tuple.remote, remote: tuple.local };
        let at_least = match self.find_tcp(&reverse) {
            None => None,
            // What is left of a connection like this one is in nobody's way: no segment of it can come late.
            Some(Target::TimeWait(record)) if self.was_cut_through(record) => {
                self.succeed_time_wait(now, &reverse)
            }
            Some(Target::TimeWait(_) | Target::Socket(_)) => return None,
        };
        let listener = self.find_listener(&reverse);
        let before = Glance::at(&self.sockets.get_index(index)?.tcp()?.connection);
        let Some(syn) = self.next_segment(now, index) else {
            self.settle_with(now, index, before, true);
            return Some(Turn::Done);
        };
        let Some(listener) = listener else {
            self.stats.tcp_no_socket += 1;
            if let Some(reset) = tcp::reset_for(&as_received(&syn, now)) {
                self.give_segment(now, index, &tuple, &as_received(&reset, now));
            }
            return Some(Turn::Done);
        };
        match self.open_half(now, listener, reverse, &as_received(&syn, now), at_least) {
            Some(child) => self.shake_hands(now, (index, &tuple), (child, &reverse)),
            // As if the SYN were lost: its timer sends it again.
            None => self.settle_with(now, index, before, true),
        }
        Some(Turn::Done)
    }

    /// The second and third segment of the handshake; then the ends are joined, if all is as it should be.
    fn shake_hands(&mut self, now: Instant, active: (u32, &FourTuple), passive: (u32, &FourTuple)) {
        self.leave_output(passive.0);
        let (mut from, mut to) = (passive, active);
        // SYN-ACK and acknowledgement; what else an end might want to say by itself goes by segments.
        for _ in 0..2 {
            let Some(segment) = self.next_segment(now, from.0) else { break };
            self.give_segment(now, to.0, to.1, &as_received(&segment, now));
            core::mem::swap(&mut from, &mut to);
        }
        let (active, passive) = (active.0, passive.0);
        if let Some([one, other]) = self.sockets.pair_mut(active, passive)
            && let (Some(one), Some(other)) = (one.tcp_mut(), other.tcp_mut())
            && other.stage == Stage::Queued
            && one.connection.can_cut_through()
            && other.connection.can_cut_through()
        {
            join(&mut one.connection, &mut other.connection);
            (one.partner, other.partner) = (Partner::Joined(passive), Partner::Joined(active));
            self.stats.tcp_cut_through += 1;
        }
        for index in [active, passive] {
            self.leave_output(index);
            let tcp = self.sockets.get_index(index).and_then(|socket| socket.tcp());
            if tcp.is_some_and(|tcp| tcp.connection.wants_output(now)) {
                self.schedule(index);
            }
            self.sync_timer(index);
        }
    }

    fn next_segment(&mut self, now: Instant, index: u32) -> Option<tcp::SegmentOut> {
        let tcp = self.sockets.get_index_mut(index)?.tcp_mut()?;
        tcp.connection
            .poll_segment(now, &tcp::OutputLimit { max_payload: 0 })
            .filter(|segment| segment.len == 0)
    }

    /// Carries what either end of a joined connection has for the other.
    fn exchange(&mut self, now: Instant, index: u32, partner: u32, budget: &mut Budget) -> Turn {
        let Some([socket, other]) = self.sockets.pair_mut(index, partner) else { return Turn::Done };
        let (Some(one), Some(two)) = (socket.tcp_mut(), other.tcp_mut()) else { return Turn::Done };
        let before = [Glance::at(&one.connection), Glance::at(&two.connection)];
        let most = budget.turn_bytes as u64;
        let out = carry(now, &mut one.connection, &mut two.connection, &one.stream, &mut two.stream, most);
        let back = carry(now, &mut two.connection, &mut one.connection, &two.stream, &mut one.stream, most);
        let bytes = out.bytes + back.bytes;
        budget.spend(1, bytes as usize);
        self.local_bytes_left = self.local_bytes_left.saturating_sub(bytes as usize);
        self.stats.cut_through_bytes += bytes;
        if out.stop == Stop::Parted || back.stop == Stop::Parted {
            (one.partner, two.partner) = (Partner::Gone, Partner::Gone);
        }
        self.after_carrying(now, index, before[0], out);
        self.after_carrying(now, partner, before[1], back);
        if out.stop == Stop::Budget || back.stop == Stop::Budget { Turn::More } else { Turn::Done }
    }

    fn after_carrying(&mut self, now: Instant, index: u32, before: Glance, carried: Carried) {
        self.settle_with(now, index, before, true);
        if carried.stop == Stop::NoMemory {
            self.arm_by(now + RETRY, index);
        }
    }

    /// The application of one end has read: the other end may have waited for that.
    pub(crate) fn schedule_partner(&mut self, now: Instant, partner: u32) {
        let tcp = self.sockets.get_index(partner).and_then(|socket| socket.tcp());
        if tcp.is_some_and(|tcp| tcp.connection.wants_output(now)) {
            self.schedule(partner);
        }
    }

    /// A joined socket leaves: whatever its partner still sends finds nobody.
    pub(crate) fn part(&mut self, index: u32) {
        let Some(tcp) = self.sockets.get_index_mut(index).and_then(|socket| socket.tcp_mut()) else { return };
        let Partner::Joined(partner) = core::mem::replace(&mut tcp.partner, Partner::Gone) else { return };
        if let Some(tcp) = self.sockets.get_index_mut(partner).and_then(|socket| socket.tcp_mut()) {
            tcp.partner = Partner::Gone;
            self.schedule(partner);
        }
    }
}

/// A segment as the other end receives it.
fn as_received(segment: &tcp::SegmentOut, now: Instant) -> tcp::SegmentIn<'static> {
    tcp::SegmentIn {
        header: segment.header.clone(),
        payload: &[],
        arrival: now,
        segment_count: 1,
        ecn: tcp::Ecn::default(),
    }
}
