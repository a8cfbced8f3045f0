//! Network noise that is nobody's business: ARP requests for other hosts and broadcasts to a port where nobody listens, at a
//! rate, out of a device.

mod sys;

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wire::arp::{Operation, Packet};
use wire::ethernet::{self, EtherType, EthernetAddress};
use wire::ip::{Ecn, Protocol};
use wire::{ipv4, udp};

use sys::PacketSocket;

/// Of the frames, the shortest that Ethernet has, less its checksum.
const FRAME_LEN: usize = 60;
/// Nobody: the noise's sender, and the host that it asks for.
const SENDER: (EthernetAddress, Ipv4Addr) =
    (EthernetAddress([0x02, 0, 0, 0, 0, 0x99]), Ipv4Addr::new(10, 77, 0, 99));
const WANTED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 200);
const TO_ALL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 255);
/// The discard service, which nobody has.
const PORT: u16 = 9;
/// When nothing is due yet.
const PAUSE: Duration = Duration::from_micros(100);
/// Frames that one call sends; then the clock is looked at.
const BATCH: usize = 64;

/// What came of a storm.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Storm {
    /// Frames that the device took.
    pub sent: u64,
    /// Frames that it had no room for, or that a filter at its other end dropped.
    pub refused: u64,
    /// How long it went on.
    pub seconds: f64,
}

/// Sends `per_second` frames out of `device` for so long, half of them ARP requests and half UDP broadcasts.
pub fn storm(device: &str, per_second: f64, duration: Duration) -> io::Result<Storm> {
    let (arp, datagram) = (arp_request(), broadcast());
    let frames: Vec<&[u8]> =
        (0..BATCH).map(|number| if number % 2 == 0 { arp.as_slice() } else { datagram.as_slice() }).collect();
    let mut socket = PacketSocket::open(device, &frames)?;
    let dropped_before = dropped(device)?;
    let began = Instant::now();
    let (mut sent, mut refused) = (0, 0);
    loop {
        let elapsed = began.elapsed();
        let due = (elapsed.as_secs_f64() * per_second) as u64;
        let late = due.saturating_sub(sent + refused).min(BATCH as u64) as usize;
        let mut next = 0;
        while next < late {
            match socket.send(next..late) {
                Ok(count) => {
                    sent += count as u64;
                    next += count;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    refused += 1;
                    next += 1;
                }
                Err(error) => return Err(error),
            }
        }
        // Behind the sending: what was due is not forgotten because this process did not run meanwhile.
        if elapsed >= duration {
            // The call does not tell of what the device drops after it has taken it.
            let lost = (dropped(device)? - dropped_before).min(sent);
            let seconds = elapsed.as_secs_f64();
            return Ok(Storm { sent: sent - lost, refused: refused + lost, seconds });
        }
        if late == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Frames that a device of this network namespace was to send and has dropped.
fn dropped(device: &str) -> io::Result<u64> {
    let table = std::fs::read_to_string("/proc/self/net/dev")?;
    dropped_of(&table, device).ok_or_else(|| io::Error::other(format!("/proc/self/net/dev has no {device}")))
}

/// In the kernel's table eight numbers of a device are of what it received; the fourth after them are its drops.
fn dropped_of(table: &str, device: &str) -> Option<u64> {
    let (_, numbers) =
        table.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == device)?;
    numbers.split_whitespace().nth(11)?.parse().ok()
}

fn link_header(ethertype: EtherType) -> ethernet::Header {
    ethernet::Header { destination: EthernetAddress::BROADCAST, source: SENDER.0, ethertype }
}

fn arp_request() -> Vec<u8> {
    let mut frame = vec![0; FRAME_LEN];
    let at = link_header(EtherType::ARP).emit(&mut frame);
    Packet {
        operation: Operation::Request,
        sender_hardware: SENDER.0,
        sender_protocol: SENDER.1,
        target_hardware: EthernetAddress::default(),
        target_protocol: WANTED,
    }
    .emit(&mut frame[at..]);
    frame
}

fn broadcast() -> Vec<u8> {
    let mut frame = vec![0; FRAME_LEN];
    let at = link_header(EtherType::IPV4).emit(&mut frame);
    let datagram = FRAME_LEN - at - ipv4::HEADER_LEN;
    ipv4::Header {
        dscp: 0,
        ecn: Ecn::from_bits(0),
        total_len: (FRAME_LEN - at) as u16,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: Protocol::UDP,
        source: SENDER.1,
        destination: TO_ALL,
    }
    .emit(&mut frame[at..]);
    // RFC 768: a checksum of zero says that there is none.
    udp::Header { src_port: PORT, dst_port: PORT, len: datagram as u16, checksum: 0 }
        .emit(&mut frame[at + ipv4::HEADER_LEN..]);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive                                                |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n    \
             lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14     15   16\n  \
             ob0:      1       2    3    4    5     6          7         8        9      10   11   99   13    14     15   16\n";
        assert_eq!(dropped_of(table, "ob0"), Some(99));
        assert_eq!(dropped_of(table, "ob1"), None);
    }

    #[test]
    fn the_noise_is_well_formed_and_for_nobody_here() {
        let arp = arp_request();
        let (header, payload) = ethernet::Header::parse(&arp).unwrap();
        assert_eq!((header.destination, header.ethertype), (EthernetAddress::BROADCAST, EtherType::ARP));
        assert_eq!(Packet::parse(payload).unwrap().target_protocol, WANTED);
        let datagram = broadcast();
        let (_, payload) = ethernet::Header::parse(&datagram).unwrap();
        let packet = ipv4::Packet::parse(payload).unwrap();
        assert_eq!((packet.header.destination, packet.header.protocol), (TO_ALL, Protocol::UDP));
        assert_eq!((arp.len(), datagram.len()), (FRAME_LEN, FRAME_LEN));
    }
}
