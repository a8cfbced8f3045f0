//! The system calls behind a TAP interface: `ioctl`s on `/dev/net/tun` and on interfaces (tun.c of Linux,
//! `linux/if_tun.h`, netdevice(7)).

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use super::TapError;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNATTACHFILTER: libc::c_ulong = 0x4010_54d5;
const TUNDETACHFILTER: libc::c_ulong = 0x4010_54d6;
const TUNSETVNETLE: libc::c_ulong = 0x4004_54dc;

/// The kernel is not to look for the filter of an earlier user in this process's memory.
const IFF_NOFILTER: libc::c_int = 0x1000;

/// `linux/if_tun.h`: the reader takes frames whose checksum is not filled in.
pub(super) const TUN_F_CSUM: u32 = 0x01;
/// The reader takes TCP super-segments over IPv4.
pub(super) const TUN_F_TSO4: u32 = 0x02;
/// The reader takes TCP super-segments over IPv6.
pub(super) const TUN_F_TSO6: u32 = 0x04;
/// The reader takes super-segments with ECN's CWR set.
pub(super) const TUN_F_TSO_ECN: u32 = 0x08;
/// The reader takes runs of UDP datagrams over IPv4 (Linux 6.2).
pub(super) const TUN_F_USO4: u32 = 0x20;
/// The reader takes runs of UDP datagrams over IPv6 (Linux 6.2).
pub(super) const TUN_F_USO6: u32 = 0x40;

/// Opens the clone device, non-blocking.
pub(super) fn open_clone_device() -> Result<File, TapError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(TapError::Open)
}

/// A request about the interface `name`, with every other field zero.
fn request(name: &str) -> Result<libc::ifreq, TapError> {
    if name.is_empty()
        || name.len() >= libc::IFNAMSIZ
        || name.bytes().any(|b| b == 0 || b == b'/' || b == b' ')
    {
        return Err(TapError::Name(name.to_owned()));
    }
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(request)
}

/// Attaches `device` to the interface `name`, creating the interface if there is none.
pub(super) fn attach(device: &File, name: &str, ethernet: bool) -> Result<(), TapError> {
    let mut request = request(name)?;
    let kind = if ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_NOFILTER;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the descriptor is open and `request` outlives the call, which reads and writes one `ifreq`.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, &mut request) };
    check(answer).map_err(|error| TapError::Attach { name: name.to_owned(), error })
}

/// The name of the interface that an inherited descriptor is attached to.
pub(super) fn attached_name(device: &File) -> Result<String, TapError> {
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `request` outlives the call, which writes one `ifreq`.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), TUNGETIFF, &mut request) };
    check(answer).map_err(TapError::Descriptor)?;
    request.ifr_name[libc::IFNAMSIZ - 1] = 0;
    // SAFETY: the array ends in a zero byte, written just above.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

/// Sets the length of the virtio-net header and its byte order (little endian).
pub(super) fn set_header(device: &File, length: usize) -> io::Result<()> {
    let length = length as libc::c_int;
    // SAFETY: the descriptor is open; the call reads one `int`, which outlives it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNSETVNETHDRSZ, &length) })?;
    let little_endian: libc::c_int = 1;
    // SAFETY: as above.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNSETVNETLE, &little_endian) })
}

/// Says which offloads the reader of this device takes. The flags belong to the interface and outlive the descriptor.
pub(super) fn set_offload(device: &File, flags: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open; this call takes its argument by value.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
}

/// Lets the kernel drop what the program does not let pass, in place of what another program did.
pub(super) fn attach_filter(device: &File, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the descriptor is open; the call reads the structure and the instructions, which both outlive it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNATTACHFILTER, &raw const program) })
}

/// Lets every frame come again.
pub(super) fn detach_filter(device: &File) -> io::Result<()> {
    let nothing = libc::sock_fprog { len: 0, filter: std::ptr::null_mut() };
    // SAFETY: the descriptor is open; the call looks at the structure at most, which outlives it.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNDETACHFILTER, &raw const nothing) })
}

/// Says whether the interface outlives its last descriptor.
pub(super) fn set_persistent(device: &File, persistent: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open; this call takes its argument by value.
    check(unsafe { libc::ioctl(device.as_raw_fd(), TUNSETPERSIST, libc::c_ulong::from(persistent)) })
}

/// A socket for `ioctl`s on interfaces of the calling thread's network namespace.
pub(super) fn interface_socket() -> io::Result<OwnedFd> {
    rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(Into::into)
}

/// The interface's MTU in bytes.
pub(super) fn mtu(socket: RawFd, name: &str) -> Result<u32, TapError> {
    let mut request = request(name)?;
    // SAFETY: the call reads the name from `request` and writes its MTU field; `request` outlives it.
    check(unsafe { libc::ioctl(socket, libc::SIOCGIFMTU as _, &mut request) })
        .map_err(|error| TapError::Interface { name: name.to_owned(), error })?;
    // SAFETY: SIOCGIFMTU filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
}

/// Sets the interface's MTU.
pub(super) fn set_mtu(socket: RawFd, name: &str, mtu: u16) -> Result<(), TapError> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = libc::c_int::from(mtu);
    // SAFETY: the call only reads `request`, which outlives it.
    check(unsafe { libc::ioctl(socket, libc::SIOCSIFMTU as _, &request) }).map_err(|error| TapError::Mtu {
        name: name.to_owned(),
        mtu,
        error,
    })
}

/// Brings the interface up.
pub(super) fn bring_up(socket: RawFd, name: &str) -> Result<(), TapError> {
    let failed = |error| TapError::Interface { name: name.to_owned(), error };
    let mut request = request(name)?;
    // SAFETY: the call reads the name from `request` and writes its flags; `request` outlives it.
    check(unsafe { libc::ioctl(socket, libc::SIOCGIFFLAGS as _, &mut request) }).map_err(failed)?;
    // SAFETY: SIOCGIFFLAGS filled in this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call only reads `request`, which outlives it.
    check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request) }).map_err(failed)
}

/// Gives the kernel's end of the interface an IPv4 address and netmask.
pub(super) fn set_address(
    socket: RawFd,
    name: &str,
    address: [u8; 4],
    netmask: [u8; 4],
) -> Result<(), TapError> {
    for (call, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, netmask)] {
        let mut request = request(name)?;
        // SAFETY: `sockaddr_in` and `sockaddr` are plain old data of the same size; the union member is written whole.
        unsafe {
            let mut socket_address: libc::sockaddr_in = std::mem::zeroed();
            socket_address.sin_family = libc::AF_INET as libc::sa_family_t;
            socket_address.sin_addr.s_addr = u32::from_ne_bytes(value);
            request.ifr_ifru.ifru_addr =
                std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(socket_address);
        }
        // SAFETY: the call only reads `request`, which outlives it.
        check(unsafe { libc::ioctl(socket, call as _, &request) })
            .map_err(|error| TapError::Interface { name: name.to_owned(), error })?;
    }
    Ok(())
}

/// Writes the slices as one frame.
pub(super) fn write_frame(device: &File, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    rustix::io::writev(device, slices).map_err(Into::into)
}

/// Reads one frame.
pub(super) fn read_frame(device: &File, buffer: &mut [u8]) -> io::Result<usize> {
    rustix::io::read(device, buffer).map_err(Into::into)
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
