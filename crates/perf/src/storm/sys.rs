//! A packet socket: frames out of a device as they are.

use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sends frames, link header included. They are given once, so that sending costs little besides the call.
pub(super) struct PacketSocket<'a> {
    descriptor: OwnedFd,
    messages: Vec<libc::mmsghdr>,
    /// What the messages point to.
    _pieces: Vec<libc::iovec>,
    _frames: PhantomData<&'a [u8]>,
}

impl<'a> PacketSocket<'a> {
    /// Opens one for a device of this network namespace.
    pub(super) fn open(device: &str, frames: &[&'a [u8]]) -> io::Result<Self> {
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
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut pieces: Vec<libc::iovec> = frames
            .iter()
            .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
            .collect();
        let messages = pieces
            .iter_mut()
            .map(|piece| {
                // SAFETY: all-zero is a value of this plain C structure.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = piece;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        Ok(Self { descriptor, messages, _pieces: pieces, _frames: PhantomData })
    }

    /// Sends the frames of these numbers; how many went.
    pub(super) fn send(&mut self, numbers: Range<usize>) -> io::Result<usize> {
        let messages = &mut self.messages[numbers];
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the messages point to pieces, which this socket owns and never moves, and these to frames, which outlive
        // it; the call only reads the frames.
        let sent =
            unsafe { libc::sendmmsg(descriptor, messages.as_mut_ptr(), messages.len() as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
