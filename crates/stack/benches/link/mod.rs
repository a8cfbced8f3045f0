//! What the benchmarks share: a link in memory, buffers of a fixed size, and two hosts with one connection.
#![allow(dead_code, reason = "each benchmark uses a part")]

use base::{Duration, Instant, IpCidr, SeededRng};
use outboard_stack as stack;
use stack::{
    Batch, BufferFamily, ConflictDetection, FixedBuffers, FixedStream, FrameSink, InterfaceConfig,
    InterfaceId, SinkFull, SocketId, SocketOptions, Stack, StackConfig,
};
use wire::checksum::Sum;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, ChecksumOut, Medium, RxFrame, TxFrame};

/// The most that the application writes in a turn.
pub(crate) const CHUNK: usize = 128 << 10;
/// The stream repeats itself after so many bytes.
const PERIOD: usize = 16 << 10;
const PORT: u16 = 80;

/// The stream's bytes: byte `n` is `bytes[n % PERIOD]`; the period stands there twice, so that any part is one slice.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    pub(crate) fn new() -> Self {
        let byte = |at: usize| ((at % PERIOD).wrapping_mul(0x9E37_79B1) >> 13) as u8;
        Self((0..2 * PERIOD).map(byte).collect())
    }

    /// Writes the stream's bytes from offset `at` on.
    pub(crate) fn write(&self, at: u64, into: &mut [u8]) {
        let start = at as usize % PERIOD;
        for part in into.chunks_mut(PERIOD) {
            part.copy_from_slice(&self.0[start..start + part.len()]);
        }
    }

    /// Whether these are the stream's bytes from offset `at` on.
    pub(crate) fn is(&self, at: u64, bytes: &[u8]) -> bool {
        let start = at as usize % PERIOD;
        bytes.chunks(PERIOD).all(|part| *part == self.0[start..start + part.len()])
    }
}

/// One direction of the link: frames in order, in memory that is allocated once.
pub(crate) struct Link {
    slots: Vec<Box<[u8]>>,
    lengths: Vec<usize>,
    head: usize,
    len: usize,
}

impl Link {
    /// Room for `frames` frames of `mtu` bytes.
    pub(crate) fn new(frames: usize, mtu: usize) -> Self {
        let slots = (0..frames).map(|_| vec![0; mtu].into()).collect();
        Self { slots, lengths: vec![0; frames], head: 0, len: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.len < self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The next frame's room; it is sent by this.
    pub(crate) fn push(&mut self, length: usize) -> &mut [u8] {
        assert!(self.has_room());
        let at = self.after(self.head + self.len);
        self.len += 1;
        self.lengths[at] = length;
        &mut self.slots[at][..length]
    }

    /// The oldest frame; `pop` takes it off.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        (self.len > 0).then(|| &self.slots[self.head][..self.lengths[self.head]])
    }

    pub(crate) fn pop(&mut self) {
        self.head = self.after(self.head + 1);
        self.len -= 1;
    }

    /// A slot's number, which is no further than once around; a division would cost more than much else here.
    fn after(&self, slot: usize) -> usize {
        if slot < self.slots.len() { slot } else { slot - self.slots.len() }
    }
}

/// The frame goes on the link; its checksum is summed while it is copied.
fn copy(frame: &TxFrame<'_>, to: &mut [u8]) {
    let (headers, payload) = to.split_at_mut(frame.headers.len());
    headers.copy_from_slice(frame.headers);
    match frame.checksum {
        ChecksumOut::Complete => {
            let (first, second) = payload.split_at_mut(frame.payload[0].len());
            first.copy_from_slice(frame.payload[0]);
            second.copy_from_slice(frame.payload[1]);
        }
        ChecksumOut::Partial { start, offset } => {
            let covered = &mut headers[usize::from(start)..];
            let sum = Sum::of(covered).copy_across([payload, &mut []], frame.payload);
            covered[usize::from(offset)..][..2].copy_from_slice(&sum.finish().to_be_bytes());
        }
    }
}

impl FrameSink for Link {
    fn ready(&self, _: InterfaceId) -> bool {
        self.has_room()
    }

    fn room(&self, _: InterfaceId) -> usize {
        self.slots.len() - self.len
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        copy(frame, self.push(frame.frame_len()));
        Ok(())
    }
}

/// A link without a queue: a frame is handed to the other stack while it is sent.
struct Handed<'a> {
    to: Batch<'a, FixedBuffers>,
    interface: InterfaceId,
}

impl FrameSink for Handed<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        true
    }

    fn room(&self, _: InterfaceId) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        self.to.handle_parts(self.interface, frame.headers, frame.payload);
        Ok(())
    }
}

/// Two hosts, a link each way, and as many connections as wanted.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Stack<FixedBuffers>,
    pub(crate) server: Stack<FixedBuffers>,
    pub(crate) forward: Link,
    pub(crate) back: Link,
    pub(crate) interface: InterfaceId,
    pub(crate) listener: SocketId,
    pub(crate) window: usize,
    /// The size of the rings.
    pub(crate) ring: usize,
}

/// One stream from the client to the server.
pub(crate) struct Transfer {
    pub(crate) pair: Pair,
    pub(crate) pattern: Pattern,
    pub(crate) from: SocketId,
    pub(crate) to: SocketId,
    pub(crate) queued: u64,
    pub(crate) read: u64,
    /// Whether the applications write and read the bytes; else they only say that they have.
    pub(crate) touches: bool,
    /// Whether all bytes that were read were the stream's.
    pub(crate) is_right: bool,
    /// The most that the application writes in a turn.
    pub(crate) chunk: usize,
}

/// A host 10.0.0.NUMBER at a link that sums for it.
pub(crate) fn host<B: BufferFamily>(
    number: u8,
    mtu: u16,
    window: usize,
    link_sums: bool,
) -> (Stack<B>, InterfaceId) {
    let mut config = StackConfig {
        conflict_detection: ConflictDetection::Off,
        ephemeral_ports: (1024, 65_535),
        max_backlog: 4096,
        ..StackConfig::default()
    };
    config.tcp.initial_window = window as u32;
    config.tcp.window_limit = window as u32;
    let mut host = Stack::new(config, SeededRng::new(number.into()), [number; 16]);
    let capabilities = Capabilities {
        medium: Medium::Ip,
        mtu,
        checksum_tx: link_sums,
        checksum_rx: false,
        max_segmentation: 0,
        hardware_address: EthernetAddress::default(),
    };
    let address: IpCidr = format!("10.0.0.{number}/24").parse().expect("an address");
    let interface = InterfaceConfig { name: "link".into(), capabilities, addresses: vec![address] };
    let interface = host.add_interface(Instant::ZERO, interface);
    (host, interface)
}

impl Pair {
    /// A link that holds `frames` frames of `mtu` bytes each way, and rings of `ring` bytes behind a window that may be
    /// larger, for those who never fill it.
    pub(crate) fn new(mtu: u16, frames: usize, window: usize, ring: usize) -> Self {
        Self::over(mtu, frames, window, ring, true)
    }

    /// The same, whose links sum for them while they copy or not.
    fn over(mtu: u16, frames: usize, window: usize, ring: usize, link_sums: bool) -> Self {
        let (client, interface) = host(1, mtu, window, link_sums);
        let (mut server, _) = host(2, mtu, window, link_sums);
        let listener = Self::listen(&mut server, PORT, ring);
        let (forward, back) = (Link::new(frames, mtu.into()), Link::new(frames, mtu.into()));
        let now = Instant::from_millis(1000);
        Self { now, client, server, forward, back, interface, listener, window, ring }
    }

    pub(crate) fn listen(server: &mut Stack<FixedBuffers>, port: u16, ring: usize) -> SocketId {
        let at = format!("10.0.0.2:{port}").parse().expect("an address");
        server.tcp_listen(at, 4096, ring, &SocketOptions::default()).expect("a listener")
    }

    pub(crate) fn connect_to(&mut self, port: u16) -> SocketId {
        let to = format!("10.0.0.2:{port}").parse().expect("an address");
        let stream = FixedStream::new(self.ring);
        self.client.tcp_connect(self.now, None, to, stream, &SocketOptions::default()).expect("a connection")
    }

    /// The client's output, and the server's input.
    pub(crate) fn carry_forward(&mut self) {
        client_output(self.now, &mut self.client, &mut self.forward);
        server_input(self.now, &mut self.server, self.interface, &mut self.forward);
    }

    /// The server's output, and the client's input.
    pub(crate) fn carry_back(&mut self) {
        server_output(self.now, &mut self.server, &mut self.back);
        client_input(self.now, &mut self.client, self.interface, &mut self.back);
    }

    /// Both ways, for what is not to be counted: through none of the functions below.
    pub(crate) fn carry_uncounted(&mut self) {
        let Self { now, client, server, forward, back, interface, .. } = self;
        carry(*now, client, server, *interface, forward);
        carry(*now, server, client, *interface, back);
    }

    /// A connection that is established at both ends.
    pub(crate) fn connect(&mut self) -> (SocketId, SocketId) {
        let from = self.connect_to(PORT);
        for _ in 0..10 {
            self.now += Duration::from_micros(10);
            self.carry_forward();
            self.carry_back();
            if let Some(to) = self.server.tcp_accept(self.listener) {
                return (from, to);
            }
        }
        unreachable!("nothing is lost on this link");
    }
}

fn carry(
    now: Instant,
    from: &mut Stack<FixedBuffers>,
    to: &mut Stack<FixedBuffers>,
    interface: InterfaceId,
    link: &mut Link,
) {
    while from.deadline().is_some_and(|at| at <= now) {
        from.handle_deadlines(now);
    }
    from.poll_transmit(now, link);
    let mut batch = to.begin_batch(now);
    while let Some(bytes) = link.front() {
        batch.handle_frame(interface, &RxFrame::plain(bytes));
        link.pop();
    }
}

// Functions that are never inlined, nor made one of because they are the same, so that an instruction counter can tell the
// two ends apart.

#[inline(never)]
pub(crate) fn client_output(now: Instant, client: &mut Stack<FixedBuffers>, link: &mut Link) {
    std::hint::black_box(1);
    client.poll_transmit(now, link);
}

#[inline(never)]
pub(crate) fn server_output(now: Instant, server: &mut Stack<FixedBuffers>, link: &mut Link) {
    std::hint::black_box(2);
    server.poll_transmit(now, link);
}

#[inline(never)]
pub(crate) fn client_input(
    now: Instant,
    client: &mut Stack<FixedBuffers>,
    interface: InterfaceId,
    link: &mut Link,
) {
    std::hint::black_box(3);
    let mut batch = client.begin_batch(now);
    while let Some(bytes) = link.front() {
        batch.handle_frame(interface, &RxFrame::plain(bytes));
        link.pop();
    }
}

#[inline(never)]
pub(crate) fn server_input(
    now: Instant,
    server: &mut Stack<FixedBuffers>,
    interface: InterfaceId,
    link: &mut Link,
) {
    std::hint::black_box(4);
    let mut batch = server.begin_batch(now);
    while let Some(bytes) = link.front() {
        batch.handle_frame(interface, &RxFrame::plain(bytes));
        link.pop();
    }
}

/// The client's output and the server's input in one, without a queue.
#[inline(never)]
pub(crate) fn handed_forward(
    now: Instant,
    client: &mut Stack<FixedBuffers>,
    server: &mut Stack<FixedBuffers>,
    interface: InterfaceId,
) {
    std::hint::black_box(8);
    client.poll_transmit(now, &mut Handed { to: server.begin_batch(now), interface });
}

/// The server's output and the client's input.
#[inline(never)]
pub(crate) fn handed_back(
    now: Instant,
    server: &mut Stack<FixedBuffers>,
    client: &mut Stack<FixedBuffers>,
    interface: InterfaceId,
) {
    std::hint::black_box(9);
    server.poll_transmit(now, &mut Handed { to: client.begin_batch(now), interface });
}

#[inline(never)]
pub(crate) fn client_changes(client: &mut Stack<FixedBuffers>) {
    std::hint::black_box(5);
    while client.poll_changed().is_some() {}
}

#[inline(never)]
pub(crate) fn server_changes(server: &mut Stack<FixedBuffers>) {
    std::hint::black_box(6);
    while server.poll_changed().is_some() {}
}

#[inline(never)]
pub(crate) fn client_queued(client: &mut Stack<FixedBuffers>, id: SocketId, queued: u64) {
    client.tcp_send(id, queued);
}

#[inline(never)]
pub(crate) fn server_consumed(now: Instant, server: &mut Stack<FixedBuffers>, id: SocketId, read: u64) {
    server.tcp_consumed(now, id, read);
}

#[inline(never)]
pub(crate) fn client_deadlines(now: Instant, client: &mut Stack<FixedBuffers>) {
    std::hint::black_box(7);
    while client.deadline().is_some_and(|at| at <= now) {
        client.handle_deadlines(now);
    }
}

#[inline(never)]
pub(crate) fn server_deadlines(now: Instant, server: &mut Stack<FixedBuffers>) {
    while server.deadline().is_some_and(|at| at <= now) {
        server.handle_deadlines(now);
    }
}

/// What the sending application does: queues what there is room for.
#[inline(never)]
pub(crate) fn client_application(transfer: &mut Transfer) {
    let Transfer { pair, pattern, from, queued, chunk, touches, .. } = transfer;
    client_changes(&mut pair.client);
    let Some((connection, stream)) = pair.client.tcp_and_stream(*from) else { return };
    stream.release(connection.acked_to());
    let [first, second] = stream.writable();
    let len = (first.len() + second.len()).min(*chunk);
    if len > 0 {
        if *touches {
            let (in_first, in_second) = (first.len().min(len), len.saturating_sub(first.len()));
            pattern.write(*queued, &mut first[..in_first]);
            pattern.write(*queued + in_first as u64, &mut second[..in_second]);
        }
        *queued = stream.queue(len);
        client_queued(&mut pair.client, *from, *queued);
    }
}

/// What the receiving application does: looks at every byte, in place.
#[inline(never)]
pub(crate) fn server_application(transfer: &mut Transfer) {
    let Transfer { pair, pattern, to, read, touches, is_right, .. } = transfer;
    server_changes(&mut pair.server);
    let Some((connection, stream)) = pair.server.tcp_and_stream(*to) else { return };
    let received = connection.received_to();
    if received > *read {
        if *touches {
            let mut at = *read;
            for part in stream.readable(received) {
                *is_right &= pattern.is(at, part);
                at += part.len() as u64;
            }
        }
        *read = received;
        stream.consume(received);
        server_consumed(pair.now, &mut pair.server, *to, *read);
    }
}

impl Transfer {
    pub(crate) fn new(mtu: u16, frames: usize, buffer: usize) -> Self {
        Self::between(Pair::new(mtu, frames, buffer, buffer))
    }

    /// For [`turn_handed`](Self::turn_handed).
    pub(crate) fn handed(mtu: u16, buffer: usize) -> Self {
        Self::between(Pair::over(mtu, 4, buffer, buffer, false))
    }

    fn between(mut pair: Pair) -> Self {
        let (from, to) = pair.connect();
        Self {
            pair,
            pattern: Pattern::new(),
            from,
            to,
            queued: 0,
            read: 0,
            touches: true,
            is_right: true,
            chunk: CHUNK,
        }
    }

    /// Everything once: the application writes, data goes, the other reads, acknowledgements come.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.pair.now = now;
        client_application(self);
        self.pair.carry_forward();
        server_application(self);
        self.pair.carry_back();
        client_deadlines(now, &mut self.pair.client);
        server_deadlines(now, &mut self.pair.server);
    }

    /// The same over a link that hands each frame over while it is sent.
    pub(crate) fn turn_handed(&mut self, now: Instant) {
        self.pair.now = now;
        client_application(self);
        let Pair { client, server, interface, .. } = &mut self.pair;
        handed_forward(now, client, server, *interface);
        server_application(self);
        let Pair { client, server, interface, .. } = &mut self.pair;
        handed_back(now, server, client, *interface);
        client_deadlines(now, &mut self.pair.client);
        server_deadlines(now, &mut self.pair.server);
    }
}
