//! What comes with a datagram and what may go with one: the control messages of ip(7).

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::{cmsghdr, in_addr, in_pktinfo, msghdr, sockaddr_in};
use outboard::raw::{Datagram, DatagramOptions};

use crate::errno;
use crate::sockaddr::{as_inet, unmapped};

/// `IP_PKTINFO`
const PACKET_INFO: u8 = 1;
/// `IP_RECVTTL`
const TTL: u8 = 2;
/// `IP_RECVTOS`
const TOS: u8 = 4;
/// `IP_RECVORIGDSTADDR`
const DESTINATION: u8 = 8;

/// The bit of an option that asks for a control message.
pub(crate) fn bit_of(level: c_int, name: c_int) -> Option<u8> {
    match (level, name) {
        (libc::SOL_IP, libc::IP_PKTINFO) => Some(PACKET_INFO),
        (libc::SOL_IP, libc::IP_RECVTTL) => Some(TTL),
        (libc::SOL_IP, libc::IP_RECVTOS) => Some(TOS),
        (libc::SOL_IP, libc::IP_RECVORIGDSTADDR) => Some(DESTINATION),
        _ => None,
    }
}

/// The room for ancillary data of a message, filled from its start (Linux: `put_cmsg`).
pub(crate) struct Room<'a> {
    message: &'a mut msghdr,
    used: usize,
}

impl<'a> Room<'a> {
    /// All of it.
    pub(crate) fn new(message: &'a mut msghdr) -> Self {
        Self { message, used: 0 }
    }

    /// Adds a control message, cut to what room there is.
    ///
    /// # Safety
    /// The message's room must be as large as it says.
    pub(crate) unsafe fn put(&mut self, level: c_int, kind: c_int, bytes: &[u8]) {
        let left = self.message.msg_controllen - self.used;
        if self.message.msg_control.is_null() || left < size_of::<cmsghdr>() {
            self.message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        let (whole, space) = lengths(bytes.len());
        if whole > left {
            self.message.msg_flags |= libc::MSG_CTRUNC;
        }
        let length = whole.min(left);
        // SAFETY: the header and as many bytes as `length` says lie in the room; it may be unaligned.
        unsafe {
            let place = self.message.msg_control.cast::<u8>().add(self.used);
            let header = cmsghdr { cmsg_len: length as _, cmsg_level: level, cmsg_type: kind };
            place.cast::<cmsghdr>().write_unaligned(header);
            let data = length - size_of::<cmsghdr>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.add(size_of::<cmsghdr>()), data);
        }
        self.used += space.min(left);
    }

    /// How much was used is told.
    pub(crate) fn end(self) {
        self.message.msg_controllen = self.used;
    }
}

/// The length of a control message with so many bytes of data, and the space that it takes.
fn lengths(data: usize) -> (usize, usize) {
    let data = data as c_uint;
    // SAFETY: these only compute.
    unsafe { (libc::CMSG_LEN(data) as usize, libc::CMSG_SPACE(data) as usize) }
}

/// Tells what is wanted of a datagram, in the order of Linux (`ip_cmsg_recv_offset`).
///
/// # Safety
/// As [`Room::put`].
pub(crate) unsafe fn tell(room: &mut Room<'_>, wanted: u8, datagram: &Datagram) {
    let local = unmapped(datagram.local);
    let IpAddr::V4(ip) = local.ip() else { return };
    // SAFETY: the caller says so.
    unsafe {
        if wanted & PACKET_INFO != 0 {
            room.put(libc::SOL_IP, libc::IP_PKTINFO, &packet_info(ip));
        }
        if wanted & TTL != 0 {
            room.put(libc::SOL_IP, libc::IP_TTL, &c_int::from(datagram.ttl).to_ne_bytes());
        }
        if wanted & TOS != 0 {
            room.put(libc::SOL_IP, libc::IP_TOS, &[datagram.tos]);
        }
        if wanted & DESTINATION != 0 {
            room.put(libc::SOL_IP, libc::IP_ORIGDSTADDR, &destination(ip, local.port()));
        }
    }
}

/// `struct in_pktinfo`. The stack's interfaces have no number with the kernel: 1 is that of the loopback device, which every
/// program may name.
fn packet_info(ip: Ipv4Addr) -> [u8; size_of::<in_pktinfo>()] {
    let mut bytes = [0; size_of::<in_pktinfo>()];
    bytes[..4].copy_from_slice(&1u32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes[8..].copy_from_slice(&ip.octets());
    bytes
}

fn destination(ip: Ipv4Addr, port: u16) -> [u8; size_of::<sockaddr_in>()] {
    let mut bytes = [0; size_of::<sockaddr_in>()];
    as_inet(SocketAddr::new(ip.into(), port), |inet| bytes[..inet.len()].copy_from_slice(inet));
    bytes
}

/// What a message to send says of itself (Linux: `ip_cmsg_send`).
///
/// # Safety
/// The ancillary data must be as long as the message says.
pub(crate) unsafe fn options(message: &msghdr) -> io::Result<DatagramOptions> {
    let mut options = DatagramOptions::default();
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return Ok(options);
    }
    // SAFETY: the caller's ancillary data, of the length that it says.
    let bytes =
        unsafe { std::slice::from_raw_parts(message.msg_control.cast::<u8>(), message.msg_controllen) };
    let mut at = 0;
    while bytes.len() - at >= size_of::<cmsghdr>() {
        // SAFETY: the header lies in the slice.
        let header = unsafe { bytes.as_ptr().add(at).cast::<cmsghdr>().read_unaligned() };
        let length = header.cmsg_len as usize;
        if length < size_of::<cmsghdr>() || length > bytes.len() - at {
            return Err(errno::error(libc::EINVAL));
        }
        let data = &bytes[at + size_of::<cmsghdr>()..at + length];
        if header.cmsg_level == libc::SOL_IP {
            take(&mut options, header.cmsg_type, data)?;
        }
        let (_, space) = lengths(length - size_of::<cmsghdr>());
        at = (at + space).min(bytes.len());
    }
    Ok(options)
}

fn take(options: &mut DatagramOptions, kind: c_int, data: &[u8]) -> io::Result<()> {
    let number = match *data {
        [a, b, c, d] => Some(c_int::from_ne_bytes([a, b, c, d])),
        _ => None,
    };
    let small = |number: c_int| u8::try_from(number).ok();
    match (kind, number) {
        (libc::IP_TTL, Some(ttl)) if (1..=255).contains(&ttl) => options.ttl = small(ttl).unwrap_or(0),
        (libc::IP_TOS, Some(tos)) if (0..=255).contains(&tos) => options.tos = small(tos).unwrap_or(0),
        (libc::IP_TOS, None) if data.len() == 1 => options.tos = data[0],
        // Which of the stack's addresses it is from, the socket's or the route's, stays as it is.
        (libc::IP_PKTINFO, _) if data.len() == size_of::<in_pktinfo>() => {}
        _ => return Err(errno::error(libc::EINVAL)),
    }
    Ok(())
}

const _: () = assert!(size_of::<in_pktinfo>() == 4 + 2 * size_of::<in_addr>());
