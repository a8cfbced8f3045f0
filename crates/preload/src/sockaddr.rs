//! Between `struct sockaddr` and `SocketAddr`.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::memory;
use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// The address family that a program's socket was made for. The stack's own addresses are IPv4; on an IPv6 socket
/// they appear as v4-mapped ones (RFC 4291 §2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AF_INET`
    V4,
    /// `AF_INET6`
    V6,
}

impl Family {
    /// The family of a socket's domain, if it is an Internet one.
    pub(crate) fn of_domain(domain: c_int) -> Option<Self> {
        match domain {
            libc::AF_INET => Some(Self::V4),
            libc::AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    /// The `AF_` number.
    pub(crate) fn domain(self) -> c_int {
        match self {
            Self::V4 => libc::AF_INET,
            Self::V6 => libc::AF_INET6,
        }
    }
}

/// Reads an Internet address. `Ok(None)`: it is of another family, or too short for its family, so the kernel
/// shall judge it.
///
/// # Safety
/// `address` must point to `length` readable bytes, or be null.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: at least the family is readable.
    let family = unsafe { std::ptr::addr_of!((*address).sa_family).read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: so many bytes are readable; the program may have aligned them as it likes.
            let inet = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(inet.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(inet.sin_port))))
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let inet = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(inet.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                u16::from_be(inet.sin6_port),
                inet.sin6_flowinfo,
                inet.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// As [`read`]; `None` as well if it is too long or nowhere, so the kernel shall judge it.
///
/// # Safety
/// As [`read`], where the kernel may not be asked.
pub(crate) unsafe fn read_checked(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if length as usize > size_of::<libc::sockaddr_storage>() {
        return None;
    }
    // SAFETY: the caller's pointer; if its first bytes can be read, so can the few that follow.
    unsafe {
        memory::fetch(address.cast::<[u8; 2]>()).ok()?;
        read(address, length)
    }
}

/// The family that an address says it is of.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn family_of(address: *const sockaddr, length: socklen_t) -> Option<c_int> {
    if (length as usize) < size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: the caller's pointer; the family comes first.
    unsafe { memory::fetch(address.cast::<sa_family_t>()) }.ok().map(c_int::from)
}

/// Reads a `sockaddr_in`, of whatever family it says it is, and this family. `None`: it is too short.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_as_inet(
    address: *const sockaddr,
    length: socklen_t,
) -> Option<(c_int, SocketAddr)> {
    if address.is_null() || (length as usize) < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: so many bytes are readable.
    let inet = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    let ip = Ipv4Addr::from_bits(u32::from_be(inet.sin_addr.s_addr));
    let remote = SocketAddrV4::new(ip, u16::from_be(inet.sin_port));
    Some((inet.sin_family.into(), SocketAddr::V4(remote)))
}

/// The same address with a v4-mapped IPv6 one made IPv4.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(IpAddr::V4(ip), address.port()),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// Writes an address as a socket of `family` shows it: cut to the room there is, with its full length told, as
/// Linux does. A null `address` asks for nothing.
///
/// # Safety
/// If `address` is not null, `length` must point to its room in bytes and `address` to that many writable bytes.
pub(crate) unsafe fn write(
    value: SocketAddr,
    family: Family,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> io::Result<()> {
    if address.is_null() {
        return Ok(());
    }
    if length.is_null() {
        return Err(crate::errno::error(libc::EFAULT));
    }
    // SAFETY: the caller says that it points to a length.
    let room = unsafe { *length };
    let room = usize::try_from(room.cast_signed()).map_err(|_| crate::errno::error(libc::EINVAL))?;
    let full = with_bytes(value, family, |bytes| {
        // SAFETY: at most `room` bytes are written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len().min(room)) };
        bytes.len()
    });
    // SAFETY: as above.
    unsafe { *length = full as socklen_t };
    Ok(())
}

/// Where there is no address to tell (that of a stream's sender), to who asks for one.
///
/// # Safety
/// As [`write`].
pub(crate) unsafe fn write_none(address: *mut sockaddr, length: *mut socklen_t) -> io::Result<()> {
    if address.is_null() {
        return Ok(());
    }
    if length.is_null() {
        return Err(crate::errno::error(libc::EFAULT));
    }
    // SAFETY: the caller says that it points to a length.
    unsafe {
        if (*length).cast_signed() < 0 {
            return Err(crate::errno::error(libc::EINVAL));
        }
        *length = 0;
    }
    Ok(())
}

/// An address as a socket of `family` shows it.
pub(crate) fn bytes(value: SocketAddr, family: Family) -> Vec<u8> {
    with_bytes(value, family, <[u8]>::to_vec)
}

/// An IPv4 address as the bytes of a `sockaddr_in`.
pub(crate) fn as_inet(value: SocketAddr, use_bytes: impl FnOnce(&[u8])) {
    with_bytes(value, Family::V4, use_bytes);
}

/// As [`write`], for calls that are not of the data path: pointers to nowhere and bad lengths are refused as by Linux.
///
/// # Safety
/// As [`write`], where the kernel may not be asked.
pub(crate) unsafe fn write_checked(
    value: SocketAddr,
    family: Family,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> io::Result<()> {
    // SAFETY: the caller's pointer.
    let room = unsafe { memory::fetch(length)? };
    let Ok(room) = usize::try_from(room.cast_signed()) else { return Err(crate::errno::error(libc::EINVAL)) };
    let full = with_bytes(value, family, |bytes| {
        let cut = &bytes[..bytes.len().min(room)];
        // SAFETY: as above.
        let stored = if cut.is_empty() { Ok(()) } else { unsafe { memory::store(cut, address.cast()) } };
        stored.map(|()| bytes.len() as socklen_t)
    })?;
    // SAFETY: as above.
    unsafe { memory::store(&full.to_ne_bytes(), length.cast()) }
}

fn with_bytes<T>(value: SocketAddr, family: Family, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
    match (family, value) {
        (Family::V4, SocketAddr::V4(value)) => {
            let inet = sockaddr_in {
                sin_family: libc::AF_INET as sa_family_t,
                sin_port: value.port().to_be(),
                sin_addr: libc::in_addr { s_addr: value.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            };
            use_bytes(as_bytes(&inet))
        }
        (_, value) => {
            let (ip, flow, scope) = match value {
                SocketAddr::V4(value) => (value.ip().to_ipv6_mapped(), 0, 0),
                SocketAddr::V6(value) => (*value.ip(), value.flowinfo(), value.scope_id()),
            };
            let inet = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as sa_family_t,
                sin6_port: value.port().to_be(),
                sin6_flowinfo: flow,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: scope,
            };
            use_bytes(as_bytes(&inet))
        }
    }
}

/// A kernel structure without padding, as bytes.
fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: `sockaddr_in` and `sockaddr_in6` have no padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_c(value: SocketAddr, family: Family, room: usize) -> (Option<SocketAddr>, socklen_t) {
        let mut bytes = [0u8; 64];
        let mut length = room as socklen_t;
        // SAFETY: the buffer has 64 bytes, `room` is at most that.
        unsafe {
            write(value, family, bytes.as_mut_ptr().cast(), &mut length).unwrap();
            (read(bytes.as_ptr().cast(), length.min(room as socklen_t)), length)
        }
    }

    #[test]
    fn addresses_survive_the_way_through_c() {
        let four: SocketAddr = "10.1.2.3:4567".parse().unwrap();
        let six: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        assert_eq!(through_c(four, Family::V4, 16), (Some(four), 16));
        assert_eq!(through_c(six, Family::V6, 28), (Some(six), 28));
    }

    #[test]
    fn an_ipv4_address_is_mapped_on_an_ipv6_socket() {
        let four: SocketAddr = "10.1.2.3:4567".parse().unwrap();
        let (mapped, length) = through_c(four, Family::V6, 28);
        assert_eq!(length, 28);
        assert_eq!(mapped, Some("[::ffff:10.1.2.3]:4567".parse().unwrap()));
        assert_eq!(mapped.map(unmapped), Some(four));
    }

    #[test]
    fn too_little_room_cuts_the_address_and_tells_its_length() {
        let four: SocketAddr = "10.1.2.3:4567".parse().unwrap();
        assert_eq!(through_c(four, Family::V4, 8), (None, 16));
    }
}
