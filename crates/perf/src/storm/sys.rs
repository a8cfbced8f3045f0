//! A packet socket: frames out of a device as they are.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Frames of one call.
const MOST: usize = 64;

/// Sends frames, link header included.
pub(super) struct PacketSocket {
    descriptor: OwnedFd,
}

impl PacketSocket {
    /// Opens one for a device of this network namespace.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let name = CString::new(device)?;
        // SAFETY: the name ends with a zero byte and is only read.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it takes no pointer. No protocol: nothing is received.
        let number = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let on: libc::c_int = 1;
        // No queue in between: the device takes a frame or it does not.
        // SAFETY: the option's value is an integer that lives during the call.
        let bypassed = unsafe {
            libc::setsockopt(
                descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if bypassed < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is of the length given, and lives during the call.
        let bound = unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { descriptor }) }
    }

    /// Sends frames, at most 64 of them; how many went.
    pub(super) fn send(&self, frames: &[&[u8]]) -> io::Result<usize> {
        // SAFETY: all-zero is a value of these plain C structures.
        let (mut pieces, mut messages): ([libc::iovec; MOST], [libc::mmsghdr; MOST]) =
            unsafe { std::mem::zeroed() };
        let count = frames.len().min(MOST);
        for ((frame, piece), message) in frames.iter().zip(&mut pieces).zip(&mut messages) {
            *piece = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the first `count` messages point to pieces, and these to frames, that live during the call, which
        // only reads the frames.
        let sent = unsafe { libc::sendmmsg(descriptor, messages.as_mut_ptr(), count as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
