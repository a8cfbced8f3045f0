//! A simulated host: a stack, the clock that it sees, and when it gets round to its frames.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use base::{Duration, Instant, IpCidr, Rng, SeededRng};
use stack::{FrameSink, InterfaceConfig, InterfaceId, SinkFull, Stack, StackConfig};
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};

use crate::buffers::SimBuffers;
use crate::coalesce;
use crate::frame::SimFrame;

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Its stack's configuration.
    pub stack: StackConfig,
    /// What its link's frames start with.
    pub medium: Medium,
    /// Its link's MTU.
    pub mtu: u16,
    /// Whether checksums are computed and verified in software; otherwise the simulated device vouches for them.
    pub checksums: bool,
    /// The largest super-segment that its device cuts; zero: none.
    pub max_segmentation: u32,
    /// Its clock advances in steps of this; at least 1 ns.
    pub granularity: Duration,
    /// What its clock showed at the start of the world.
    pub clock_offset: Duration,
    /// Received frames wait up to this long, uniformly, until the host processes them, and later ones with them.
    pub processing_delay: Duration,
    /// Whether its device merges received segments into super-segments.
    pub coalesce: bool,
    /// What its device takes.
    pub device: Option<DeviceSpec>,
}

/// A device that takes only so many frames in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Frames.
    pub frames: usize,
    /// The time.
    pub every: Duration,
}

impl HostSpec {
    /// What the host's clock shows at `now`.
    fn clock(&self, now: Instant) -> Instant {
        let shown = (now + self.clock_offset).as_nanos();
        Instant::from_nanos(shown - shown % self.granularity.as_nanos().max(1))
    }
}

/// Assembles the next frame or super-segment in the scratch buffer.
fn next_received(
    spec: &HostSpec,
    inbox: &mut VecDeque<SimFrame>,
    scratch: &mut Vec<u8>,
) -> Option<(SimFrame, u16)> {
    if spec.coalesce {
        return coalesce::take(inbox, scratch);
    }
    let frame = inbox.pop_front()?;
    frame.assemble(scratch);
    Some((frame, 0))
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            stack: StackConfig::default(),
            medium: Medium::Ip,
            mtu: 1500,
            checksums: false,
            max_segmentation: 0,
            granularity: Duration::from_micros(1),
            clock_offset: Duration::ZERO,
            processing_delay: Duration::ZERO,
            coalesce: false,
            device: None,
        }
    }
}

/// A host of a world.
pub(crate) struct Host<B: SimBuffers> {
    pub(crate) spec: HostSpec,
    pub(crate) number: u16,
    pub(crate) stack: Stack<B>,
    pub(crate) interface: InterfaceId,
    pub(crate) owner: B::Owner,
    pub(crate) inbox: VecDeque<SimFrame>,
    /// When the frames in the inbox are processed.
    pub(crate) processed_at: Instant,
    pub(crate) outbox: Vec<SimFrame>,
    room: usize,
    room_renewed: Instant,
    rng: SeededRng,
    scratch: Vec<u8>,
}

/// The address of a host.
pub const fn address(number: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + number as u32)
}

const fn hardware_address(number: u16) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, (number >> 8) as u8, number as u8])
}

/// The host that a frame is for; `None`: for all, or for nobody.
fn destination(medium: Medium, headers: &[u8]) -> Option<u16> {
    match medium {
        Medium::Ethernet => match headers.first_chunk::<6>()? {
            [2, 0, 0, 0, high, low] => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        },
        Medium::Ip => {
            let bytes = headers.get(16..20)?.first_chunk::<4>()?;
            u16::try_from(u32::from_be_bytes(*bytes).checked_sub(0x0a00_0001)?).ok()
        }
    }
}

impl<B: SimBuffers> Host<B> {
    pub(crate) fn new(number: u16, spec: HostSpec, mut rng: SeededRng) -> Self {
        let (stack, interface) = start(number, &spec, &mut rng, Instant::ZERO + spec.clock_offset);
        Self {
            spec,
            number,
            stack,
            interface,
            owner: B::owner(),
            inbox: VecDeque::new(),
            processed_at: Instant::FAR_FUTURE,
            outbox: Vec::new(),
            room: 0,
            room_renewed: Instant::ZERO,
            rng,
            scratch: Vec::new(),
        }
    }

    /// What the host's clock shows at `now`.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        self.spec.clock(now)
    }

    /// When the host's clock will show `shown` or later.
    pub(crate) fn when(&self, shown: Instant) -> Instant {
        let step = self.spec.granularity.as_nanos().max(1);
        let nanos = shown.as_nanos();
        Instant::from_nanos(nanos.div_ceil(step).saturating_mul(step)) - self.spec.clock_offset
    }

    /// A frame arrives from the network at `now`; returns when it will be processed.
    pub(crate) fn handle_arrival(&mut self, now: Instant, mut frame: SimFrame) -> Instant {
        frame.arrival = now;
        if self.inbox.is_empty() {
            let most = self.spec.processing_delay.as_nanos();
            let wait = if most == 0 { 0 } else { self.rng.below(most + 1) };
            self.processed_at = now + Duration::from_nanos(wait);
        }
        self.inbox.push_back(frame);
        self.processed_at
    }

    /// Gives the stack the frames that are due.
    pub(crate) fn process_inbox(&mut self, now: Instant) {
        if now < self.processed_at {
            return;
        }
        self.processed_at = Instant::FAR_FUTURE;
        let shown = self.clock(now);
        let Self { spec, stack, interface, inbox, scratch, .. } = self;
        let mut batch = stack.begin_batch(shown);
        while let Some((frame, segment_size)) = next_received(spec, inbox, scratch) {
            if frame.corrupt && !has_ip(&frame) {
                // ARP has no checksum of its own: the link's would have caught it.
                continue;
            }
            let unverified = frame.corrupt || spec.checksums && segment_size == 0;
            let checksum = match (unverified, frame.partial_checksum) {
                (true, false) => ChecksumIn::Unknown,
                (_, true) => ChecksumIn::Partial,
                (false, false) => ChecksumIn::Verified,
            };
            let received = RxFrame { bytes: scratch, checksum, segment_size };
            batch.handle_frame_at(spec.clock(frame.arrival), *interface, &received);
        }
    }

    /// Lets the stack fill the outbox, as far as the device has room. Returns when it will have room again, if that is
    /// what is missing.
    pub(crate) fn fill_outbox(&mut self, now: Instant) -> Option<Instant> {
        let shown = self.clock(now);
        if let Some(device) = self.spec.device
            && now >= self.room_renewed
        {
            self.room = device.frames;
            self.room_renewed = now + device.every;
        }
        loop {
            let mut port = Port {
                number: self.number,
                medium: self.spec.medium,
                room: if self.spec.device.is_some() { self.room } else { usize::MAX },
                outbox: &mut self.outbox,
            };
            let sent = self.stack.poll_transmit(shown, &mut port);
            let left = port.room;
            if self.spec.device.is_some() {
                self.room = left;
                if left == 0 {
                    return self.stack.wants_transmit().then_some(self.room_renewed);
                }
            }
            if sent == 0 && !self.stack.wants_transmit() {
                return None;
            }
            if sent == 0 {
                // Something waits that the sink is not in the way of: it comes with a frame or a timer.
                return None;
            }
        }
    }

    /// Puts a stack in the place of the present one, as after a restart.
    pub(crate) fn restart(&mut self, now: Instant) -> Stack<B> {
        let shown = self.clock(now);
        let (stack, interface) = start(self.number, &self.spec, &mut self.rng, shown);
        self.interface = interface;
        self.inbox.clear();
        self.outbox.clear();
        self.processed_at = Instant::FAR_FUTURE;
        core::mem::replace(&mut self.stack, stack)
    }
}

fn start<B: SimBuffers>(
    number: u16,
    spec: &HostSpec,
    rng: &mut SeededRng,
    shown: Instant,
) -> (Stack<B>, InterfaceId) {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    key[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
    let mut stack = Stack::new(spec.stack.clone(), SeededRng::new(rng.next_u64()), key);
    let cidr = IpCidr::new(IpAddr::V4(address(number)), 8).expect("8 bits fit an IPv4 address");
    let interface = stack.add_interface(
        shown,
        InterfaceConfig {
            name: format!("host{number}"),
            capabilities: Capabilities {
                medium: spec.medium,
                mtu: spec.mtu,
                checksum_tx: !spec.checksums,
                checksum_rx: !spec.checksums,
                max_segmentation: spec.max_segmentation,
                hardware_address: hardware_address(number),
            },
            addresses: vec![cidr],
        },
    );
    (stack, interface)
}

/// Whether a frame carries IPv4, which has checksums.
fn has_ip(frame: &SimFrame) -> bool {
    frame.medium() == Medium::Ip || frame.head().get(12..14) == Some(&[0x08, 0x00])
}

/// Where a stack's frames go.
struct Port<'a> {
    number: u16,
    medium: Medium,
    room: usize,
    outbox: &'a mut Vec<SimFrame>,
}

/// The destination of a frame to all.
pub(crate) const EVERYBODY: u16 = u16::MAX;

impl FrameSink for Port<'_> {
    fn ready(&self, _: InterfaceId) -> bool {
        self.room > 0
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        if self.room == 0 {
            return Err(SinkFull);
        }
        self.room -= 1;
        let ends = (self.number, destination(self.medium, frame.headers).unwrap_or(EVERYBODY));
        if frame.segmentation == Segmentation::None {
            // Without anything to cut, nobody needs to sum either: the receiving device vouches for the checksum.
            let mut whole = SimFrame::new(self.medium, ends, frame.headers, frame.payload);
            whole.partial_checksum = matches!(frame.checksum, ChecksumOut::Partial { .. });
            self.outbox.push(whole);
            return Ok(());
        }
        let cut = wire::cut::cut(frame, self.medium, |headers, payload| {
            self.outbox.push(SimFrame::new(self.medium, ends, headers, payload));
        });
        cut.map(|_| ()).map_err(|_| SinkFull)
    }
}
