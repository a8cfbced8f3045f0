//! Messages with descriptors over a Unix SEQPACKET socket.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors that one message may bring.
pub const MAX_DESCRIPTORS: usize = 4;

/// What one receive gave.
#[derive(Debug)]
pub enum Received {
    /// A message of this many bytes with these descriptors.
    Message(usize, Vec<OwnedFd>),
    /// The other side is gone.
    HungUp,
    /// The message or its descriptors did not fit; the descriptors are closed.
    Truncated,
}

/// `SO_PASSRIGHTS` of Linux 6.16, on the architectures that Outboard runs on.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Makes a socket (or whatever a listening one accepts) take no descriptors: sending one to it fails. Whether the kernel
/// can do that.
///
/// Nobody sends descriptors to the FEP. One that comes all the same is closed at once, but closing can take as long as its
/// sender likes: a TCP socket of the kernel's that lingers, for example.
pub fn refuse_descriptors(socket: impl AsFd) -> io::Result<bool> {
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is open for the length of the call; the value and its size describe a valid int.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    if answer == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) { Ok(false) } else { Err(error) }
}

/// Sends one message. Whether it waits is the socket's mode.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one message into `buffer`. Whether it waits is the socket's mode.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let answer = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(answer) => break answer,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(Received::HungUp),
            Err(errno) => return Err(errno.into()),
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if answer.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Ok(Received::Truncated);
    }
    if answer.bytes == 0 {
        return Ok(Received::HungUp);
    }
    Ok(Received::Message(answer.bytes, descriptors))
}
