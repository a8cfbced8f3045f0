//! The paths between hosts, and the way that a frame takes through them.

use std::collections::HashMap;

use base::{Instant, Rng};
use netem::{Output, Path, PathSpec};
use wire::frame::Medium;
use wire::icmpv4::Message;
use wire::ip::{Ecn, Protocol};
use wire::ipv4;

use crate::frame::SimFrame;
use crate::host::address;

/// A path of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// The paths, and for each pair of hosts the ones on the way.
#[derive(Default)]
pub(crate) struct Network {
    paths: Vec<Path<SimFrame>>,
    routes: HashMap<(u16, u16), Vec<PathId>>,
    /// Frames that came to an end of their route in this step.
    pub(crate) arrived: Vec<SimFrame>,
    /// Paths whose deadline may have changed in this step.
    pub(crate) touched: Vec<PathId>,
    /// Frames to hosts that there is no way to.
    pub(crate) unroutable: u64,
}

/// The router that says that a frame is too big.
const ROUTER: core::net::Ipv4Addr = core::net::Ipv4Addr::new(10, 255, 255, 254);

impl Network {
    pub(crate) fn add_path(&mut self, spec: &PathSpec, rng: &mut impl Rng) -> PathId {
        self.paths.push(Path::new(spec, rng));
        PathId(self.paths.len() as u32 - 1)
    }

    pub(crate) fn add_route(&mut self, source: u16, destination: u16, paths: Vec<PathId>) {
        self.routes.insert((source, destination), paths);
    }

    pub(crate) fn path(&self, id: PathId) -> &Path<SimFrame> {
        &self.paths[id.0 as usize]
    }

    pub(crate) fn frames(&self) -> usize {
        self.paths.iter().map(Path::frames).sum()
    }

    /// Packets lost or damaged so far.
    pub(crate) fn lost(&self) -> u64 {
        let stages = self.paths.iter().flat_map(Path::stats);
        stages.map(|(_, stats)| stats.dropped + stats.corrupted + stats.too_big).sum()
    }

    /// All hosts that `source` has a way to, in order.
    pub(crate) fn neighbours(&self, source: u16) -> Vec<u16> {
        let mut all: Vec<u16> =
            self.routes.keys().filter(|(from, _)| *from == source).map(|(_, to)| *to).collect();
        all.sort_unstable();
        all
    }

    /// A frame goes on at `now`: into the next path of its route, or it has arrived.
    pub(crate) fn forward(&mut self, now: Instant, mut frame: SimFrame) {
        let Some(route) = self.routes.get(&(frame.source, frame.destination)) else {
            self.unroutable += 1;
            return;
        };
        match route.get(usize::from(frame.hop)) {
            None => self.arrived.push(frame),
            Some(&id) => {
                frame.hop += 1;
                self.paths[id.0 as usize].handle_frame(now, frame);
                self.drain(now, id);
            }
        }
    }

    /// Takes what has come out of a path by `now` further.
    pub(crate) fn drain(&mut self, now: Instant, id: PathId) {
        self.touched.push(id);
        while let Some(output) = self.paths[id.0 as usize].poll_output(now) {
            match output {
                Output::Deliver(frame) => self.forward(now, frame),
                Output::TooBig { frame, mtu } => {
                    if let Some(message) = fragmentation_needed(&frame, mtu) {
                        self.forward(now, message);
                    }
                }
            }
        }
    }
}

/// The ICMP message that tells the sender of `frame` that it was too big (RFC 792, RFC 1191 §4).
fn fragmentation_needed(frame: &SimFrame, mtu: u32) -> Option<SimFrame> {
    let medium = frame.medium();
    let link = medium.header_len();
    let packet = frame.head().get(link..)?;
    let quoted = &packet[..packet.len().min(28)];
    let message = Message::Unreachable {
        code: wire::icmpv4::unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
    };
    let mut bytes = [0; 14 + 20 + 8 + 28];
    if medium == Medium::Ethernet {
        let (to, from) = (frame.head().get(6..12)?, frame.head().get(..6)?);
        bytes[..6].copy_from_slice(to);
        bytes[6..12].copy_from_slice(from);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    }
    let body = &mut bytes[link + ipv4::HEADER_LEN..];
    let head_len = message.emit(body, quoted);
    body[head_len..head_len + quoted.len()].copy_from_slice(quoted);
    let length = head_len + quoted.len();
    let header = ipv4::Header {
        dscp: 0,
        ecn: Ecn::NotEct,
        total_len: (ipv4::HEADER_LEN + length) as u16,
        ident: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: Protocol::ICMP,
        source: ROUTER,
        destination: address(frame.source),
    };
    header.emit(&mut bytes[link..]);
    let whole = &bytes[..link + ipv4::HEADER_LEN + length];
    // It travels as if from the destination, over the way back.
    Some(SimFrame::new(medium, (frame.destination, frame.source), whole, [&[], &[]]))
}
