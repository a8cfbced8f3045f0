//! Watches the frames that hosts send and receive, and knows the laws that hold between them.
//!
//! It is passive and knows nothing of the stacks: a sender is held to what was delivered to its host before. It checks:
//!
//! - nothing is sent beyond the right edge of the window that the peer gave (RFC 9293 §3.8.6), but for a one-byte probe;
//! - nothing is acknowledged that did not arrive, acknowledgements never go back, and neither does the right edge of a
//!   window (RFC 9293 §3.8.6.2.1: do not shrink the window);
//! - no segment is longer than the MSS that the peer announced, and no packet longer than the MTU;
//! - no data stands behind a FIN, and the FIN does not move;
//! - timestamps do not go back (RFC 7323 §4.1) and echo only what arrived;
//! - SACK blocks report data between the acknowledgement and the newest data that arrived (RFC 2018 §4), but for the
//!   first of them, which may report a duplicate (RFC 2883).

use std::collections::HashMap;

use base::{Instant, SeqNumber};
use wire::tcp::{Flags, Header, SackBlock};

use crate::frame::SimFrame;

/// What two wire ends are called: source address and port, destination address and port.
type Ends = (u32, u16, u32, u16);

/// The laws and who is held to them.
#[derive(Debug, Default)]
pub struct Observer {
    halves: HashMap<Ends, Half>,
    violations: Vec<String>,
    /// Segments looked at.
    pub segments: u64,
    /// Payload bytes that hosts sent.
    pub bytes_sent: u64,
    /// Of these, how many had been sent before.
    pub bytes_resent: u64,
    /// Payload bytes that arrived.
    pub bytes_arrived: u64,
}

/// The most violations that are kept.
const MOST_VIOLATIONS: usize = 20;

/// One end of a connection, as a sender.
#[derive(Clone, Debug)]
struct Half {
    initial: SeqNumber,
    /// The shift that its SYN offered.
    scale: Option<u8>,
    /// The MSS that its SYN announced.
    mss: u16,
    /// The end of the newest data it sent.
    sent: SeqNumber,
    fin: Option<SeqNumber>,
    acked: Option<SeqNumber>,
    /// The right edge of the window that it gives.
    edge: Option<SeqNumber>,
    stamp: Option<u32>,
    /// The end of the newest data of the peer that has arrived at its host.
    heard: Option<SeqNumber>,
    /// The newest timestamp of the peer that has arrived.
    heard_stamp: Option<u32>,
    /// The right edge of the peer's window, as it has been told.
    allowed: Option<SeqNumber>,
    /// A window of the peer that came before this end had a sequence number, and the number of the SYN it came with.
    early_window: Option<u16>,
    peer_initial: Option<SeqNumber>,
}

impl Half {
    fn new(initial: SeqNumber) -> Self {
        Self {
            initial,
            scale: None,
            mss: 536,
            sent: initial,
            fin: None,
            acked: None,
            edge: None,
            stamp: None,
            heard: None,
            heard_stamp: None,
            allowed: None,
            early_window: None,
            peer_initial: None,
        }
    }
}

impl Observer {
    /// What was broken, up to a number.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// A host sends `frame` over a link with `mtu`.
    pub fn handle_sent(&mut self, now: Instant, frame: &SimFrame, mtu: u16) {
        let Some((ends, header, payload)) = parse(frame) else { return };
        self.segments += 1;
        if frame.len() - frame.medium().header_len() > usize::from(mtu) {
            self.report(now, ends, &header, "is longer than the MTU");
        }
        let back = reverse(ends);
        if header.flags.contains(Flags::SYN) {
            self.on_syn_sent(ends, &header);
        }
        if header.flags.contains(Flags::RST) || !self.halves.contains_key(&ends) {
            return;
        }
        let peer = self.halves.get(&back).cloned();
        let Some(half) = self.halves.get_mut(&ends) else { return };
        let mut broken = Vec::new();
        let fin = header.flags.contains(Flags::FIN);
        let end = header.seq + payload + u32::from(fin) + u32::from(header.flags.contains(Flags::SYN));
        self.bytes_sent += u64::from(payload);
        if end.after(half.sent) {
            let fresh = end.distance_from(half.sent).min(payload);
            self.bytes_resent += u64::from(payload - fresh);
            half.sent = end;
        } else {
            self.bytes_resent += u64::from(payload);
        }
        check_data(half, peer.as_ref(), &header, payload, end, &mut broken);
        check_acknowledgement(half, peer.as_ref(), &header, &mut broken);
        check_stamps(half, &header, &mut broken);
        check_sacks(half, &header, &mut broken);
        for law in broken {
            self.report(now, ends, &header, law);
        }
    }

    /// `frame` reaches the host that it is for.
    pub fn handle_arrived(&mut self, frame: &SimFrame) {
        if frame.corrupt {
            return;
        }
        let Some((ends, header, payload)) = parse(frame) else { return };
        self.bytes_arrived += u64::from(payload);
        if header.flags.contains(Flags::RST) {
            return;
        }
        let syn = header.flags.contains(Flags::SYN);
        let peer_scale = self.halves.get(&ends).and_then(|half| half.scale);
        let end = header.seq + payload + u32::from(syn) + u32::from(header.flags.contains(Flags::FIN));
        let half = self.halves.entry(reverse(ends)).or_insert_with(|| Half::new(SeqNumber(0)));
        let asks = syn && !header.flags.contains(Flags::ACK);
        if asks && !half.has_sent() && half.peer_initial != Some(header.seq) {
            *half = Half {
                early_window: Some(header.window),
                peer_initial: Some(header.seq),
                ..Half::new(SeqNumber(0))
            };
        }
        half.heard = Some(half.heard.map_or(end, |heard| heard.later(end)));
        if let Some(stamps) = header.options.timestamps {
            let newest = half.heard_stamp.map_or(stamps.value, |heard| later_stamp(heard, stamps.value));
            half.heard_stamp = Some(newest);
        }
        if header.flags.contains(Flags::ACK) {
            let shift = if syn { 0 } else { half.scale.and(peer_scale).unwrap_or(0) };
            let edge = header.ack + (u32::from(header.window) << shift);
            half.allowed = Some(half.allowed.map_or(edge, |allowed| allowed.later(edge)));
        }
    }

    fn on_syn_sent(&mut self, ends: Ends, header: &Header) {
        let back = reverse(ends);
        let known = self.halves.get(&ends).is_some_and(|half| half.initial == header.seq && half.has_sent());
        if known {
            return;
        }
        let old = self.halves.remove(&ends);
        let mut half = Half::new(header.seq);
        half.scale = header.options.window_scale;
        half.mss = header.options.mss.unwrap_or(536);
        if header.flags.contains(Flags::ACK) {
            // What the peer's SYN said was heard before this end had a sequence number.
            if let Some(old) = old {
                half.heard = old.heard;
                half.heard_stamp = old.heard_stamp;
                half.allowed = old.early_window.map(|window| header.seq + 1 + u32::from(window));
            }
        } else {
            // A new connection: what either end remembers is of an old one.
            self.halves.remove(&back);
        }
        self.halves.insert(ends, half);
    }

    fn report(&mut self, now: Instant, ends: Ends, header: &Header, law: &str) {
        if self.violations.len() < MOST_VIOLATIONS {
            let (source, destination) =
                (core::net::Ipv4Addr::from_bits(ends.0), core::net::Ipv4Addr::from_bits(ends.2));
            self.violations.push(format!(
                "{now:?} {source}:{} > {destination}:{} {:?} seq {:?} ack {:?} win {}: {law}",
                ends.1, ends.3, header.flags, header.seq, header.ack, header.window
            ));
        }
    }
}

impl Half {
    /// Whether it is a sender's already, and not only what was heard before its SYN.
    fn has_sent(&self) -> bool {
        self.sent != self.initial
    }
}

fn check_data(
    half: &mut Half,
    peer: Option<&Half>,
    header: &Header,
    payload: u32,
    end: SeqNumber,
    broken: &mut Vec<&'static str>,
) {
    let fin = header.flags.contains(Flags::FIN);
    // RFC 7413 §4.1.3: the data of a SYN goes before any window is known.
    let asks = header.flags.intersection(Flags::SYN | Flags::ACK) == Flags::SYN;
    if (payload > 0 || fin) && !asks {
        // One sequence number more than the window: a probe, or a FIN.
        if half.allowed.is_none_or(|allowed| end.after(allowed + 1)) {
            broken.push("goes beyond the peer's window");
        }
        if peer.is_some_and(|peer| payload > u32::from(peer.mss)) {
            broken.push("carries more than the peer's MSS");
        }
    }
    let data_end = end - u32::from(fin);
    match half.fin {
        Some(at) if fin && at != data_end => broken.push("moves the FIN"),
        Some(at) if payload > 0 && data_end.after(at) => broken.push("has data behind the FIN"),
        None if fin => half.fin = Some(data_end),
        _ => {}
    }
}

fn check_acknowledgement(
    half: &mut Half,
    peer: Option<&Half>,
    header: &Header,
    broken: &mut Vec<&'static str>,
) {
    if !header.flags.contains(Flags::ACK) {
        return;
    }
    if half.heard.is_none_or(|heard| header.ack.after(heard)) {
        broken.push("acknowledges what has not arrived");
    }
    if half.acked.is_some_and(|acked| header.ack.before(acked)) {
        broken.push("takes an acknowledgement back");
    }
    half.acked = Some(header.ack);
    let syn = header.flags.contains(Flags::SYN);
    let shift = if syn { 0 } else { peer.and_then(|peer| peer.scale).and(half.scale).unwrap_or(0) };
    let edge = header.ack + (u32::from(header.window) << shift);
    // Rounding to the unit of the window may take back less than one unit.
    let slack = (1_u32 << shift) - 1;
    // The window of a SYN-ACK is not scaled; one that is repeated after early data (RFC 7413 §4.2.2) may tell of less.
    if !syn && half.edge.is_some_and(|before| (edge + slack).before(before)) {
        broken.push("shrinks the window");
    }
    half.edge = Some(half.edge.map_or(edge, |before| before.later(edge)));
}

fn check_stamps(half: &mut Half, header: &Header, broken: &mut Vec<&'static str>) {
    let Some(stamps) = header.options.timestamps else { return };
    if half.stamp.is_some_and(|before| is_before(stamps.value, before)) {
        broken.push("takes its timestamp back");
    }
    half.stamp = Some(stamps.value);
    let echoes = header.flags.contains(Flags::ACK);
    if echoes && half.heard_stamp.is_none_or(|heard| is_before(heard, stamps.echo)) {
        broken.push("echoes a timestamp that has not arrived");
    }
}

fn check_sacks(half: &Half, header: &Header, broken: &mut Vec<&'static str>) {
    let heard = half.heard.unwrap_or(header.ack);
    for (index, SackBlock { start, end }) in header.options.sack.iter().enumerate() {
        let duplicate = index == 0;
        if !start.before(*end) || end.after(heard) {
            broken.push("reports a SACK block of what has not arrived");
        } else if !duplicate && !start.after(header.ack) {
            broken.push("reports a SACK block that it has acknowledged");
        }
    }
}

/// Reads the headers of a TCP segment, and how much payload follows; the payload need not be there.
fn parse(frame: &SimFrame) -> Option<(Ends, Header, u32)> {
    let link = frame.medium().header_len();
    let ip = frame.head().get(link..)?;
    let ip_len = usize::from(ip.first()? & 15) * 4;
    let is_fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff != 0;
    if ip[0] >> 4 != 4 || is_fragment || *ip.get(9)? != wire::ip::Protocol::TCP.0 {
        return None;
    }
    let segment = ip.get(ip_len..)?;
    let (header, _) = Header::parse(segment).ok()?;
    let header_len = usize::from(segment.get(12)? >> 4) * 4;
    let payload = frame.len().saturating_sub(link + ip_len + header_len) as u32;
    let word = |at: usize| ip.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
    Some(((word(12)?, header.src_port, word(16)?, header.dst_port), header, payload))
}

const fn reverse(ends: Ends) -> Ends {
    (ends.2, ends.3, ends.0, ends.1)
}

const fn is_before(stamp: u32, other: u32) -> bool {
    (stamp.wrapping_sub(other) as i32) < 0
}

const fn later_stamp(stamp: u32, other: u32) -> u32 {
    if is_before(stamp, other) { other } else { stamp }
}
