//! The kernel's TCP sockets of a namespace, by `sock_diag` (sock_diag(7), `linux/inet_diag.h`), as `ss -ti` has them.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};
use lab::Namespace;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use super::{Found, MAX_TRACES, Sample};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const FLAG_REQUEST: u16 = 1;
/// `NLM_F_ROOT | NLM_F_MATCH`.
const FLAG_DUMP: u16 = 0x300;
const NETLINK_ERROR: u16 = 2;
const NETLINK_DONE: u16 = 3;
/// Of `nlmsghdr`, of `inet_diag_req_v2`, of `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// `INET_DIAG_INFO`, `INET_DIAG_CONG`: a request asks for number n by bit n - 1.
const ATTRIBUTE_INFO: u16 = 2;
const ATTRIBUTE_CONGESTION: u16 = 4;
/// ESTABLISHED, FIN-WAIT-1 and CLOSE-WAIT (`enum` of `net/tcp_states.h`): those that send.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 8;

/// The sockets that send, [`MAX_TRACES`] at most.
pub(super) fn sockets(namespace: &Namespace) -> Result<Vec<Found>> {
    namespace.within(|| dump(MAX_TRACES))?.context("asking the kernel for its sockets (sock_diag)")
}

fn dump(most: usize) -> io::Result<Vec<Found>> {
    let socket = net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    net::send(&socket, &request(), SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let (length, _) = net::recv(&socket, &mut buffer, RecvFlags::empty())?;
        if take(&buffer[..length], &mut found)? || found.len() >= most {
            found.truncate(most);
            return Ok(found);
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend((FLAG_REQUEST | FLAG_DUMP).to_ne_bytes());
    // The sequence number and the port, which the kernel fills in.
    bytes.extend([0; 8]);
    let wanted = 1 << (ATTRIBUTE_INFO - 1) | 1 << (ATTRIBUTE_CONGESTION - 1);
    bytes.extend([libc::AF_INET as u8, libc::IPPROTO_TCP as u8, wanted, 0]);
    bytes.extend(STATES.to_ne_bytes());
    // Any addresses and ports.
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

/// Takes the messages of one answer in; whether it was the last.
fn take(mut bytes: &[u8], found: &mut Vec<Found>) -> io::Result<bool> {
    while bytes.len() >= HEADER {
        let length = (u32_at(bytes, 0) as usize).clamp(HEADER, bytes.len());
        match u16_at(bytes, 4) {
            NETLINK_DONE => return Ok(true),
            NETLINK_ERROR => {
                return Err(io::Error::from_raw_os_error((u32_at(bytes, HEADER) as i32).wrapping_neg()));
            }
            _ => found.extend(socket(&bytes[HEADER..length])),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// One socket: `inet_diag_msg` and its attributes.
fn socket(message: &[u8]) -> Option<Found> {
    let mut attributes = message.get(MESSAGE..)?;
    let address = |port: usize, at: usize| {
        let octets: [u8; 4] = [message[at], message[at + 1], message[at + 2], message[at + 3]];
        let port = u16::from_be_bytes([message[port], message[port + 1]]);
        SocketAddrV4::new(Ipv4Addr::from(octets), port).to_string()
    };
    let mut one = Found {
        local: address(4, 8),
        remote: address(6, 24),
        congestion_control: String::new(),
        sample: Sample::default(),
        limited_by: BTreeMap::new(),
        ages: false,
        is_idle: false,
    };
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)).clamp(4, attributes.len());
        let value = &attributes[4..length];
        match u16_at(attributes, 2) {
            ATTRIBUTE_INFO => information(value, &mut one),
            ATTRIBUTE_CONGESTION => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                one.congestion_control = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(one)
}

/// `struct tcp_info` (`linux/tcp.h`). A kernel that tells less of it has zeros for the rest.
fn information(info: &[u8], one: &mut Found) {
    let segment = u64::from(u32_at(info, 16));
    let seconds = |at: usize| u64_at(info, at) as f64 / 1e6;
    one.sample = Sample {
        seconds: 0.0,
        congestion_window_bytes: u64::from(u32_at(info, 80)) * segment,
        peer_window_bytes: u32_at(info, 228).into(),
        unacknowledged_bytes: u64::from(u32_at(info, 24)) * segment,
        round_trip_us: u32_at(info, 68),
        round_trip_variation_us: u32_at(info, 72),
        delivery_rate_bytes_per_second: u64_at(info, 160),
        retransmitted_segments: u32_at(info, 100),
        bytes_sent: u64_at(info, 200),
        bytes_received: u64_at(info, 128),
    };
    // `tcpi_delivery_rate_app_limited`, `tcpi_notsent_bytes`.
    one.is_idle = info.get(7).is_some_and(|bits| bits & 1 != 0) && u32_at(info, 144) == 0;
    let (busy, window, buffer) = (seconds(168), seconds(176), seconds(184));
    one.limited_by = BTreeMap::from([
        ("peer_window".to_owned(), window),
        ("send_buffer".to_owned(), buffer),
        ("congestion_window".to_owned(), (busy - window - buffer).max(0.0)),
    ]);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_this_process_is_found_with_what_it_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        let found = dump(usize::MAX).unwrap();
        let local = client.local_addr().unwrap().to_string();
        let one = found.iter().find(|one| one.local == local).expect("the client's socket");
        assert_eq!(one.remote, server.local_addr().unwrap().to_string());
        // The kernel counts what it sends again, too, where the machine stood still before the acknowledgement.
        assert!([5000, 10_000].contains(&one.sample.bytes_sent), "{}", one.sample.bytes_sent);
        assert!(one.sample.congestion_window_bytes > 0 && !one.congestion_control.is_empty());
        let other = found.iter().find(|one| one.remote == local).expect("the server's socket");
        assert_eq!(other.sample.bytes_received, 5000);
    }

    #[test]
    fn answers_that_are_cut_short_are_no_harm() {
        let mut answer = vec![0_u8; HEADER + MESSAGE + 40];
        let length = answer.len() as u32;
        answer[..4].copy_from_slice(&length.to_ne_bytes());
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        for cut in 0..answer.len() {
            let mut found = Vec::new();
            assert!(!take(&answer[..cut], &mut found).unwrap());
        }
        answer[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(!take(&answer, &mut Vec::new()).unwrap());
    }
}
