//! What goes out next: the stack's own frames first, then the sockets that want output, in turn.
//!
//! A socket that wants output stands in exactly one list: of those whose way is still to be found, in the round of its
//! interface, or at the neighbour that it waits for. Nobody else is looked at.

use base::Instant;
use wire::ethernet::{self, EtherType, EthernetAddress};
use wire::frame::{Capabilities, ChecksumIn, Medium, RxFrame, TxFrame};

use crate::buffers::BufferFamily;
use crate::interface::{FrameSink, InterfaceId, SinkFull};
use crate::path::{CachedPath, Opening, Path};
use crate::queue::{FrameQueue, QueuedFrame};
use crate::slab::Key;
use crate::socket::{Kind, OutputLinks, OutputPlace, Partner};
use crate::stack::Stack;

/// Frames that one call of `poll_transmit` gives out at most; as many again between own sockets.
pub const TRANSMIT_BATCH: usize = 256;
/// Of them, frames that the stack made itself, before sockets have their turn: answering a flood holds nobody up.
const CONTROL_BATCH: usize = 64;
/// A socket's turn ends, if others wait, when it has sent this many bytes,
pub const TURN_BYTES: usize = 64 << 10;
/// or this many frames.
pub const TURN_FRAMES: usize = 16;
/// Bytes that one call carries between own sockets without packets. Few: both ends go on when they hear of it, which is
/// after the call.
const LOCAL_BATCH_BYTES: usize = 128 << 10;
/// Sockets whose way is found in one call.
const ROUTE_BATCH: usize = 1024;
/// Packets between own sockets that may wait, and their bytes.
pub(crate) const MAX_LOOPBACK_FRAMES: usize = 1024;
pub(crate) const MAX_LOOPBACK_BYTES: usize = 8 << 20;

/// What is left of a call and of a socket's turn.
pub(crate) struct Budget {
    pub(crate) frames: usize,
    pub(crate) turn_frames: usize,
    pub(crate) turn_bytes: usize,
}

/// How a socket's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has nothing more to send for now.
    Done,
    /// It has more, and will be asked again.
    More,
    /// Its way is to be found anew.
    Reroute,
    /// Its next hop has to answer first.
    Wait(Key),
}

/// Whatever a socket's turn needs to know of the link.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) interface: InterfaceId,
    pub(crate) capabilities: Capabilities,
    pub(crate) to: EthernetAddress,
}

/// The way of the stack to itself.
struct LoopbackSink<'a>(&'a mut FrameQueue);

impl FrameSink for LoopbackSink<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.0.has_room()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        let mut bytes = self.0.buffer();
        bytes.extend_from_slice(frame.headers);
        bytes.extend_from_slice(frame.payload[0]);
        bytes.extend_from_slice(frame.payload[1]);
        let segment_size = frame.segmentation.segment_size();
        if self.0.push(QueuedFrame { bytes, segment_size }) { Ok(()) } else { Err(SinkFull) }
    }
}

impl Budget {
    /// A turn's; `alone`: nobody else waits, and only the call is bounded.
    const fn new(frames: usize, alone: bool) -> Self {
        let (turn_frames, turn_bytes) = if alone { (frames, usize::MAX) } else { (TURN_FRAMES, TURN_BYTES) };
        Self { frames, turn_frames, turn_bytes }
    }

    pub(crate) const fn turn_is_over(&self) -> bool {
        self.frames == 0 || self.turn_frames == 0 || self.turn_bytes == 0
    }

    pub(crate) fn spend(&mut self, frames: usize, bytes: usize) {
        self.frames = self.frames.saturating_sub(frames);
        self.turn_frames = self.turn_frames.saturating_sub(frames);
        self.turn_bytes = self.turn_bytes.saturating_sub(bytes);
    }
}

impl Link {
    /// Writes the link header, if the medium has one; returns its length.
    pub(crate) fn emit(&self, buffer: &mut [u8]) -> usize {
        match self.capabilities.medium {
            Medium::Ip => 0,
            Medium::Ethernet => ethernet::Header {
                destination: self.to,
                source: self.capabilities.hardware_address,
                ethertype: EtherType::IPV4,
            }
            .emit(buffer),
        }
    }
}

impl<B: BufferFamily> Stack<B> {
    /// Gives out frames, at most [`TRANSMIT_BATCH`] and as many as the sink has room for; returns how many. If there is
    /// more, [`wants_transmit`](Self::wants_transmit) says so.
    pub fn poll_transmit(&mut self, now: Instant, sink: &mut impl FrameSink) -> usize {
        let mut frames = TRANSMIT_BATCH;
        self.transmit_pending = false;
        self.deliver_loopback(now);
        self.route_unrouted(now);
        let count = self.interfaces.len();
        let first = self.next_interface;
        for step in 0..count {
            let number = (first + step) % count;
            if number != InterfaceId::LOOPBACK.index() {
                frames = self.transmit_on(now, InterfaceId(number as u16), sink, frames);
            }
        }
        self.next_interface = (first + 1) % count;
        TRANSMIT_BATCH - frames
    }

    /// Only what goes between sockets of this stack, which [`poll_transmit`](Self::poll_transmit) does too: for an owner whose
    /// devices take nothing at present.
    pub fn poll_loopback(&mut self, now: Instant) {
        self.deliver_loopback(now);
    }

    /// Whether the last [`poll_transmit`](Self::poll_transmit) left something: since it reached its bound, since a sink
    /// had no room, or since something has come up after it.
    pub fn wants_transmit(&self) -> bool {
        self.transmit_pending
            || !self.unrouted.is_empty()
            || self.interfaces.iter().any(|link| !link.control.is_empty() || !link.ready.is_empty())
    }

    /// The socket may have something to send.
    pub(crate) fn schedule(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        if socket.place != OutputPlace::Nowhere {
            return;
        }
        if socket.tcp().is_some_and(|tcp| tcp.partner != Partner::Remote) {
            self.join_round(index, InterfaceId::LOOPBACK);
        } else {
            socket.place = OutputPlace::Unrouted;
            self.unrouted.push_back(&mut OutputLinks(&mut self.sockets), index);
        }
    }

    /// The socket has nothing to send any more.
    pub(crate) fn leave_output(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        let place = core::mem::replace(&mut socket.place, OutputPlace::Nowhere);
        let links = &mut OutputLinks(&mut self.sockets);
        match place {
            OutputPlace::Nowhere => {}
            OutputPlace::Unrouted => self.unrouted.remove(links, index),
            OutputPlace::Ready(interface) => self.interfaces[interface.index()].ready.remove(links, index),
            OutputPlace::Neighbour(entry) => {
                if let Some(entry) = self.neighbours.get_index_mut(entry) {
                    entry.sockets.remove(links, index);
                }
            }
        }
    }

    /// Takes a socket that waits for a neighbour out of its list.
    pub(crate) fn take_parked(&mut self, key: Key) -> Option<u32> {
        let links = &mut OutputLinks(&mut self.sockets);
        let index = self.neighbours.get_mut(key)?.sockets.pop_front(links)?;
        if let Some(socket) = self.sockets.get_index_mut(index) {
            socket.place = OutputPlace::Nowhere;
        }
        Some(index)
    }

    /// Finds ways for the sockets that have none.
    fn route_unrouted(&mut self, now: Instant) {
        for _ in 0..ROUTE_BATCH {
            let Some(index) = self.unrouted.pop_front(&mut OutputLinks(&mut self.sockets)) else { break };
            let Some(socket) = self.sockets.get_index_mut(index) else { continue };
            socket.place = OutputPlace::Nowhere;
            let interface = match socket.kind {
                Kind::Tcp(_) => self.tcp_interface(now, index),
                Kind::Udp(_) => self.udp_interface(index),
                Kind::Bound(_) | Kind::Listener(_) | Kind::Released => None,
            };
            if let Some(interface) = interface {
                self.join_round(index, interface);
            }
        }
    }

    pub(crate) fn join_round(&mut self, index: u32, interface: InterfaceId) {
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        debug_assert_eq!(socket.place, OutputPlace::Nowhere, "a socket waits in one list only");
        socket.place = OutputPlace::Ready(interface);
        let round = &mut self.interfaces[interface.index()].ready;
        round.push_back(&mut OutputLinks(&mut self.sockets), index);
    }

    fn park(&mut self, index: u32, key: Key) {
        let Some(entry) = self.neighbours.get_mut(key) else {
            self.schedule(index);
            return;
        };
        let Some(socket) = self.sockets.get_index_mut(index) else { return };
        socket.place = OutputPlace::Neighbour(key.index);
        entry.sockets.push_back(&mut OutputLinks(&mut self.sockets), index);
    }

    /// Gives out what waits for one interface; returns what is left of `frames`.
    fn transmit_on(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        sink: &mut impl FrameSink,
        frames: usize,
    ) -> usize {
        let mut frames = self.transmit_control(interface, sink, frames, CONTROL_BATCH);
        loop {
            if self.interfaces[interface.index()].ready.is_empty() {
                break;
            }
            let exhausted = interface == InterfaceId::LOOPBACK && self.local_bytes_left == 0;
            if frames == 0 || exhausted || !sink.ready(interface) {
                self.transmit_pending = true;
                break;
            }
            let round = &mut self.interfaces[interface.index()].ready;
            let Some(index) = round.pop_front(&mut OutputLinks(&mut self.sockets)) else { break };
            let Some(socket) = self.sockets.get_index_mut(index) else { continue };
            socket.place = OutputPlace::Nowhere;
            self.sockets_polled += 1;
            let alone = self.interfaces[interface.index()].ready.is_empty();
            let mut budget = Budget::new(frames, alone);
            let turn = match socket.kind {
                Kind::Tcp(_) => self.turn_of_tcp(now, index, interface, sink, &mut budget),
                Kind::Udp(_) => self.transmit_udp(now, index, interface, sink, &mut budget),
                Kind::Bound(_) | Kind::Listener(_) | Kind::Released => Turn::Done,
            };
            frames = budget.frames;
            match turn {
                Turn::Done => {}
                Turn::More => self.join_round(index, interface),
                Turn::Reroute => self.schedule(index),
                Turn::Wait(key) => self.park(index, key),
            }
            // A turn may have made frames of its own: requests for a neighbour, fragments.
            frames = self.transmit_control(interface, sink, frames, TURN_FRAMES);
        }
        frames
    }

    fn turn_of_tcp(
        &mut self,
        now: Instant,
        index: u32,
        interface: InterfaceId,
        sink: &mut impl FrameSink,
        budget: &mut Budget,
    ) -> Turn {
        if interface == InterfaceId::LOOPBACK
            && let Some(turn) = self.cut_through(now, index, budget)
        {
            return turn;
        }
        self.transmit_tcp(now, index, interface, sink, budget)
    }

    fn transmit_control(
        &mut self,
        interface: InterfaceId,
        sink: &mut impl FrameSink,
        mut frames: usize,
        mut share: usize,
    ) -> usize {
        let queue = &mut self.interfaces[interface.index()].control;
        while let Some(frame) = queue.front() {
            if frames == 0 || share == 0 || !sink.ready(interface) {
                self.transmit_pending = true;
                break;
            }
            share -= 1;
            let sent = sink.transmit(interface, &TxFrame::plain(&frame.bytes, [&[], &[]]));
            frames -= 1;
            let Some(frame) = queue.pop() else { break };
            match sent {
                Ok(()) => {
                    self.stats.frames_out += 1;
                    self.stats.bytes_out += frame.bytes.len() as u64;
                }
                Err(SinkFull) => self.stats.transmit_refused += 1,
            }
            queue.recycle(frame.bytes);
        }
        frames
    }

    /// Carries packets between own sockets, until nothing is left or the bound is reached.
    fn deliver_loopback(&mut self, now: Instant) {
        let mut frames = TRANSMIT_BATCH;
        self.local_bytes_left = LOCAL_BATCH_BYTES;
        loop {
            self.route_unrouted(now);
            let link = &mut self.interfaces[InterfaceId::LOOPBACK.index()];
            if link.ready.is_empty() && link.control.is_empty() {
                break;
            }
            if frames == 0 || self.local_bytes_left == 0 {
                self.transmit_pending = true;
                break;
            }
            let empty = FrameQueue::new(MAX_LOOPBACK_FRAMES, MAX_LOOPBACK_BYTES);
            let mut queue = core::mem::replace(&mut link.control, empty);
            let (sent, bytes) = (self.stats.frames_out, self.stats.bytes_out);
            frames = self.transmit_on(now, InterfaceId::LOOPBACK, &mut LoopbackSink(&mut queue), frames);
            // These never reached a device.
            (self.stats.frames_out, self.stats.bytes_out) = (sent, bytes);
            core::mem::swap(&mut queue, &mut self.interfaces[InterfaceId::LOOPBACK.index()].control);
            // What the turns put there themselves comes after.
            while let Some(frame) = queue.pop() {
                self.interfaces[InterfaceId::LOOPBACK.index()].control.push(frame);
            }
            frames = self.receive_loopback(now, frames);
        }
    }

    fn receive_loopback(&mut self, now: Instant, mut frames: usize) -> usize {
        while frames > 0 {
            let queue = &mut self.interfaces[InterfaceId::LOOPBACK.index()].control;
            let Some(frame) = queue.pop() else { break };
            frames -= 1;
            let received = RxFrame {
                bytes: &frame.bytes,
                checksum: ChecksumIn::Partial,
                segment_size: frame.segment_size,
            };
            self.handle_ip(now, now, InterfaceId::LOOPBACK, &received, false);
            self.interfaces[InterfaceId::LOOPBACK.index()].control.recycle(frame.bytes);
        }
        frames
    }

    /// The link along `path`, if it is open now.
    pub(crate) fn open_link(&mut self, now: Instant, path: Path) -> Result<Link, Turn> {
        match self.open_path(now, path) {
            Opening::Open(to) => Ok(Link {
                interface: path.interface,
                capabilities: self.interfaces[path.interface.index()].capabilities,
                to,
            }),
            Opening::Wait(key) => Err(Turn::Wait(key)),
            Opening::Stale => Err(Turn::Reroute),
        }
    }

    /// A remembered way, if it still holds.
    pub(crate) fn valid_path(&self, cached: Option<CachedPath>) -> Option<Path> {
        cached.filter(|cached| cached.epoch == self.routes.epoch()).map(|cached| cached.path)
    }
}
