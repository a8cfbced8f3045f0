//! A packet socket: frames out of a device as they are.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is of the length given, and lives during the call.
        let bound = unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { descriptor }) }
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.descriptor, frame, rustix::net::SendFlags::empty())?;
        Ok(())
    }
}
