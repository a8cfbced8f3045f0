//! What comes with a datagram and what may go with one: the control messages of ip(7), and the times of socket(7).

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use libc::{cmsghdr, in_addr, in_pktinfo, msghdr, sockaddr_in};
use outboard::raw::{Datagram, DatagramOptions, QueuedError};

use crate::description::{InetSocket, Kind};
use crate::sockaddr::{as_inet, unmapped};
use crate::timestamping::{self, SO_TIMESTAMPING_NEW};
use crate::{errno, real};

/// `IP_PKTINFO`
const PACKET_INFO: u8 = 1;
/// `IP_RECVTTL`
const TTL: u8 = 2;
/// `IP_RECVTOS`
const TOS: u8 = 4;
/// `IP_RECVORIGDSTADDR`
const DESTINATION: u8 = 8;

/// `SO_TIMESTAMP` or one of its kind.
const TIME: u8 = 16;
/// With [`TIME`]: in nanoseconds (`SO_TIMESTAMPNS`).
const NANOSECONDS: u8 = 32;
/// With [`TIME`]: by the later number of the option (`SO_TIMESTAMP_NEW`).
const BY_NEW_NAME: u8 = 64;

// Not among libc's constants. The earlier numbers are those that programs know as SO_TIMESTAMP and SO_TIMESTAMPNS.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;

/// What an option does to the bits, if it is one that asks for a control message: those that it clears, and those that it
/// sets if it is switched on. The last of the times that was asked for is given (Linux: `__sock_set_timestamps`).
pub(crate) fn change_of(level: c_int, name: c_int) -> Option<(u8, u8)> {
    let times = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP) => TIME,
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => TIME | NANOSECONDS,
        (libc::SOL_SOCKET, SO_TIMESTAMP_NEW) => TIME | BY_NEW_NAME,
        (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW) => TIME | NANOSECONDS | BY_NEW_NAME,
        _ => return bit_of(level, name).map(|bit| (bit, bit)),
    };
    Some((TIME | NANOSECONDS | BY_NEW_NAME, times))
}

/// The bits that `SO_TIMESTAMPING` clears and sets: its numbers decide by which the times are told.
pub(crate) fn new_name(is_new: bool) -> (u8, u8) {
    (BY_NEW_NAME, if is_new { BY_NEW_NAME } else { 0 })
}

/// All of them.
const OPTIONS: [(c_int, c_int); 8] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, SO_TIMESTAMP_NEW),
    (libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW),
    (libc::SOL_IP, libc::IP_PKTINFO),
    (libc::SOL_IP, libc::IP_RECVTTL),
    (libc::SOL_IP, libc::IP_RECVTOS),
    (libc::SOL_IP, libc::IP_RECVORIGDSTADDR),
];

/// Sets the options of these bits on the kernel's socket behind a descriptor, which answers for them.
pub(crate) fn set_all(fd: c_int, bits: u8) {
    let is_on = |&&(level, name): &&(c_int, c_int)| {
        change_of(level, name).is_some_and(|(clears, sets)| bits & clears == sets)
    };
    for &(level, name) in OPTIONS.iter().filter(is_on) {
        let (on, length): (c_int, _) = (1, size_of::<c_int>() as libc::socklen_t);
        // SAFETY: the value is as long as said. The kernel refuses none of these.
        unsafe { real::setsockopt(fd, level, name, (&raw const on).cast(), length) };
    }
}

/// The bit of an option of ip(7).
fn bit_of(level: c_int, name: c_int) -> Option<u8> {
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

/// Tells what is wanted of a datagram, in the order of Linux (`udp_recvmsg`).
///
/// # Safety
/// As [`Room::put`].
pub(crate) unsafe fn tell_datagram(room: &mut Room<'_>, socket: &InetSocket, datagram: &Datagram) {
    let wanted = socket.ancillary();
    if wanted & TIME != 0 {
        // SAFETY: the caller says so.
        unsafe { tell_time(room, wanted, arrival(datagram.arrival_ns)) };
    }
    if socket.timestamping.tells_arrival() {
        // SAFETY: the caller says so.
        unsafe { tell_times(room, wanted, arrival(datagram.arrival_ns)) };
    }
    // SAFETY: the caller says so.
    unsafe { tell(room, wanted, datagram) };
}

/// The part of that which is about IP (`ip_cmsg_recv_offset`), with what runs are told.
///
/// # Safety
/// As [`Room::put`].
unsafe fn tell(room: &mut Room<'_>, wanted: u8, datagram: &Datagram) {
    if datagram.segment > 0 {
        let size = c_int::from(datagram.segment).to_ne_bytes();
        // SAFETY: the caller says so.
        unsafe { room.put(libc::SOL_UDP, libc::UDP_GRO, &size) };
    }
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

/// `struct sock_extended_err` with the offender's address behind it.
const ERROR_LEN: usize = 16 + size_of::<sockaddr_in>();

/// Tells an entry of the queue of errors (Linux: `ip_recv_error`).
///
/// # Safety
/// As [`Room::put`].
pub(crate) unsafe fn tell_error(room: &mut Room<'_>, socket: &InetSocket, error: &QueuedError) {
    let wanted = socket.ancillary();
    if let Some(at) = error.at
        && socket.timestamping.tells_times()
    {
        // SAFETY: the caller says so.
        unsafe { tell_times(room, wanted, arrival(at.as_nanos())) };
    }
    if let Some(offender) = error.offender {
        let message = Datagram {
            copied: 0,
            length: 0,
            remote: SocketAddr::new(offender.into(), 0),
            local: SocketAddr::new(error.local.into(), 0),
            ttl: error.ttl,
            tos: error.tos,
            segment: 0,
            arrival_ns: 0,
        };
        // SAFETY: the caller says so.
        unsafe { tell(room, wanted, &message) };
    }
    let mut bytes = [0; ERROR_LEN];
    bytes[..4].copy_from_slice(&error.errno.to_ne_bytes());
    bytes[4..7].copy_from_slice(&[error.origin.number(), error.kind, error.code]);
    bytes[8..12].copy_from_slice(&error.info.to_ne_bytes());
    bytes[12..16].copy_from_slice(&error.data.to_ne_bytes());
    if let Some(offender) = error.offender {
        bytes[16..].copy_from_slice(&destination(offender, 0));
    }
    // SAFETY: the caller says so.
    unsafe { room.put(libc::SOL_IP, libc::IP_RECVERR, &bytes) };
}

/// Tells when bytes of a stream were received: now, as who reads them can tell.
///
/// # Safety
/// As [`Room::put`].
pub(crate) unsafe fn tell_time_of_stream(room: &mut Room<'_>, socket: &InetSocket) {
    let wanted = socket.ancillary();
    if wanted & TIME != 0 {
        // SAFETY: the caller says so.
        unsafe { tell_time(room, wanted, time_of(libc::CLOCK_REALTIME)) };
    }
    if socket.timestamping.tells_arrival() {
        // SAFETY: the caller says so.
        unsafe { tell_times(room, wanted, time_of(libc::CLOCK_REALTIME)) };
    }
}

/// `struct scm_timestamping`: the time that software has taken, and two of hardware, which there are not.
///
/// # Safety
/// As [`Room::put`].
unsafe fn tell_times(room: &mut Room<'_>, wanted: u8, at: Duration) {
    let mut bytes = [0; 3 * size_of::<libc::timespec>()];
    bytes[..8].copy_from_slice(&at.as_secs().to_ne_bytes());
    bytes[8..16].copy_from_slice(&u64::from(at.subsec_nanos()).to_ne_bytes());
    let kind = if wanted & BY_NEW_NAME == 0 { libc::SO_TIMESTAMPING } else { SO_TIMESTAMPING_NEW };
    // SAFETY: the caller says so.
    unsafe { room.put(libc::SOL_SOCKET, kind, &bytes) };
}

/// # Safety
/// As [`Room::put`].
unsafe fn tell_time(room: &mut Room<'_>, wanted: u8, at: Duration) {
    let (seconds, fraction) = match wanted & NANOSECONDS {
        0 => (at.as_secs(), at.subsec_micros()),
        _ => (at.as_secs(), at.subsec_nanos()),
    };
    let kind = match (wanted & NANOSECONDS != 0, wanted & BY_NEW_NAME != 0) {
        (false, false) => libc::SO_TIMESTAMP,
        (true, false) => libc::SO_TIMESTAMPNS,
        (false, true) => SO_TIMESTAMP_NEW,
        (true, true) => SO_TIMESTAMPNS_NEW,
    };
    // `struct timeval`, `struct timespec` and the kernel's later ones are all two numbers of 64 bits here.
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
    bytes[8..].copy_from_slice(&u64::from(fraction).to_ne_bytes());
    // SAFETY: the caller says so.
    unsafe { room.put(libc::SOL_SOCKET, kind, &bytes) };
}

const _: () = assert!(size_of::<libc::timeval>() == 16 && size_of::<libc::timespec>() == 16);

/// The time of day when the monotonic clock showed so much.
fn arrival(monotonic_ns: u64) -> Duration {
    let age = time_of(libc::CLOCK_MONOTONIC).saturating_sub(Duration::from_nanos(monotonic_ns));
    time_of(libc::CLOCK_REALTIME).saturating_sub(age)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid for writing.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Both are the clock's own, never negative and within their ranges.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
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

/// What a message to send says of itself (Linux: `ip_cmsg_send`), with the size of runs that the socket has, and the flags of
/// `SO_TIMESTAMPING` that count for this one.
///
/// # Safety
/// The ancillary data must be as long as the message says.
pub(crate) unsafe fn options(
    message: &msghdr,
    segment: u16,
    kind: Kind,
) -> io::Result<(DatagramOptions, Option<u32>)> {
    let mut options = DatagramOptions { segment, ..DatagramOptions::default() };
    let mut stamps = None;
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return Ok((options, stamps));
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
        match header.cmsg_level {
            // Linux: `__sock_cmsg_send`.
            libc::SOL_SOCKET if matches!(header.cmsg_type, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => {
                stamps = Some(timestamping::of_message(data).ok_or_else(|| errno::error(libc::EINVAL))?);
            }
            _ if kind == Kind::Stream => {}
            libc::SOL_IP => take(&mut options, header.cmsg_type, data)?,
            // Linux: `udp_cmsg_send`.
            libc::SOL_UDP => match (header.cmsg_type, data) {
                (libc::UDP_SEGMENT, &[a, b]) => options.segment = u16::from_ne_bytes([a, b]),
                _ => return Err(errno::error(libc::EINVAL)),
            },
            _ => {}
        }
        let (_, space) = lengths(length - size_of::<cmsghdr>());
        at = (at + space).min(bytes.len());
    }
    Ok((options, stamps))
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
        (libc::IP_PKTINFO, _) if data.len() == size_of::<in_pktinfo>() => {
            // The interface is the route's: the stack's have no numbers.
            let from = Ipv4Addr::new(data[4], data[5], data[6], data[7]);
            options.source = (!from.is_unspecified()).then_some(from.into());
        }
        _ => return Err(errno::error(libc::EINVAL)),
    }
    Ok(())
}

const _: () = assert!(size_of::<in_pktinfo>() == 4 + 2 * size_of::<in_addr>());
