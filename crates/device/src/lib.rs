//! Network devices: where frames enter and leave.
//!
//! Owns the [`Device`] trait and its drivers. A driver moves frames and their offload metadata
//! ([`wire::frame`]) between the stack and the outside; it knows nothing of protocols, except that a driver without
//! segmentation offload cuts super-segments with [`wire::cut`].
//!
//! - [`tap`]: a TAP or TUN interface of the Linux kernel, with checksum and segmentation offload.
//! - [`memory`]: a queue of frames in memory, for tests and for callers who carry frames themselves.
//! - [`capture`]: wraps any device and writes what passes to a pcapng file.
//! - [`coalesce`]: wraps any device and merges received TCP segments into super-segments.
//!
//! Reading order: this file, [`memory`], [`tap`], [`capture`], [`coalesce`].

pub mod capture;
pub mod coalesce;
pub mod memory;
pub mod tap;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, RxFrame, TxFrame};

/// A network device, driven by polling.
///
/// Neither [`receive`](Self::receive) nor [`transmit`](Self::transmit) ever waits. To sleep until there is something to
/// receive, poll [`descriptor`](Self::descriptor) for readability.
pub trait Device {
    /// What the device does by itself, and the largest packet it takes.
    fn capabilities(&self) -> Capabilities;

    /// Hands at most `budget` received frames to `handle` and returns how many there were. Fewer than `budget` means
    /// that nothing more waits.
    ///
    /// # Errors
    /// The device is gone or broken. Frames that were handed out before the error count.
    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize>;

    /// Transmits one frame, or a super-segment, which the device cuts if its capabilities say so and the driver cuts
    /// otherwise.
    ///
    /// # Errors
    /// `WouldBlock`: the device is full and nothing was sent; offer the frame again later. Anything else: the frame
    /// is lost, as it could be on a wire.
    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()>;

    /// Whether the device would take a frame now, as far as is known without trying.
    fn is_ready(&self) -> bool {
        true
    }

    /// Puts out what the device still holds back (a batch, a capture file's buffer).
    ///
    /// # Errors
    /// What is held back could not be put out.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The descriptor that becomes readable when there is something to receive, if there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// What the device counted so far.
    fn stats(&self) -> DeviceStats;

    /// A way to say what of the noise on the link is wanted, if the device can drop the rest before anybody reads it. A device
    /// that is to show everything has none.
    fn noise_filter(&self) -> Option<Box<dyn NoiseFilter>> {
        None
    }
}

/// Drops frames to all and to groups that nobody here has a use for. It applies from when
/// [`want`](Self::want) returns to the next call.
pub trait NoiseFilter: Send {
    /// Says what there is a use for.
    ///
    /// # Errors
    /// What was wanted before still passes, and what is wanted now may not.
    fn want(&mut self, wanted: &Wanted) -> io::Result<()>;

    /// Lets everything pass.
    ///
    /// # Errors
    /// The device is gone.
    fn want_everything(&mut self) -> io::Result<()>;
}

/// What a host has a use for of that which is sent to all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its own addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// The neighbours that it knows or asks for, with the hardware addresses that are no news of them. `None`: every ARP packet
    /// is wanted.
    pub neighbours: Option<Vec<(Ipv4Addr, Option<EthernetAddress>)>>,
    /// The ports at which some UDP socket takes datagrams. `None`: every datagram to all is wanted.
    pub broadcast_ports: Option<Vec<u16>>,
}

/// What a device counted. A super-segment counts as one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Frames received.
    pub frames_in: u64,
    /// Bytes in them, link header included.
    pub bytes_in: u64,
    /// Frames transmitted.
    pub frames_out: u64,
    /// Bytes in them, link header included.
    pub bytes_out: u64,
    /// Times that the device was full and a frame was refused.
    pub full: u64,
    /// Frames that the device refused with an error other than being full.
    pub errors_out: u64,
    /// Received frames that were malformed at the device's own level.
    pub errors_in: u64,
    /// System calls made, whatever their outcome.
    pub system_calls: u64,
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        (**self).receive(budget, handle)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        (**self).transmit(frame)
    }

    fn is_ready(&self) -> bool {
        (**self).is_ready()
    }

    fn flush(&mut self) -> io::Result<()> {
        (**self).flush()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn stats(&self) -> DeviceStats {
        (**self).stats()
    }

    fn noise_filter(&self) -> Option<Box<dyn NoiseFilter>> {
        (**self).noise_filter()
    }
}
