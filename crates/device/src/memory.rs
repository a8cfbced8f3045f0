//! A device in memory: a queue of frames each way, for callers who carry the frames themselves and for tests.
//!
//! [`pair`] makes two devices that are each other's wire. [`queue`] makes one device and a [`Handle`] with which the
//! caller injects what the device receives and collects what it transmits: Ethernet frames or bare IP packets, as the
//! capabilities' medium says. Both ends can move to other threads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, RxFrame, Segmentation, TxFrame};

use crate::{Device, DeviceStats};

/// Frames that a queue holds before it refuses more.
pub const QUEUE_FRAMES: usize = 1024;

/// One frame with its offload metadata, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The frame from its link (or IP) header on.
    pub bytes: Vec<u8>,
    /// What is known of its transport checksum.
    pub checksum: ChecksumIn,
    /// Payload bytes of each segment of a super-segment; zero for an ordinary frame.
    pub segment_size: u16,
}

impl Frame {
    /// An ordinary frame whose checksums are filled in but not yet verified.
    pub fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, checksum: ChecksumIn::Unknown, segment_size: 0 }
    }
}

/// One direction: frames in flight, used buffers to fill again, and an event for the receiver.
#[derive(Debug)]
struct Queue {
    frames: Mutex<Frames>,
    arrived: OwnedFd,
}

#[derive(Debug, Default)]
struct Frames {
    waiting: VecDeque<Frame>,
    spare: Vec<Vec<u8>>,
}

impl Queue {
    fn new() -> io::Result<Arc<Self>> {
        let arrived = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { frames: Mutex::default(), arrived }))
    }

    /// The frames; a holder that panicked left them consistent, since every change is one push or pop.
    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends what `fill` writes into an empty buffer, or says that the queue is full.
    fn push(&self, checksum: ChecksumIn, segment_size: u16, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut frames = self.frames();
        if frames.waiting.len() >= QUEUE_FRAMES {
            return false;
        }
        let mut bytes = frames.spare.pop().unwrap_or_default();
        bytes.clear();
        fill(&mut bytes);
        let was_empty = frames.waiting.is_empty();
        frames.waiting.push_back(Frame { bytes, checksum, segment_size });
        drop(frames);
        if was_empty {
            // The counter cannot overflow: it is read back to zero whenever the queue runs empty.
            let _ = rustix::io::write(&self.arrived, &1u64.to_ne_bytes());
        }
        true
    }

    /// Takes the oldest frame. Running empty resets the event, under the lock, so that no arrival is missed.
    fn pop(&self) -> Option<Frame> {
        let mut frames = self.frames();
        let frame = frames.waiting.pop_front();
        if frame.is_none() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.arrived, &mut count);
        }
        frame
    }

    fn recycle(&self, bytes: Vec<u8>) {
        let mut frames = self.frames();
        if frames.spare.len() < QUEUE_FRAMES {
            frames.spare.push(bytes);
        }
    }
}

/// A device whose wire is a queue in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    capabilities: Capabilities,
    inbound: Arc<Queue>,
    outbound: Arc<Queue>,
    stats: DeviceStats,
}

/// The other side of a [`queue`].
#[derive(Clone, Debug)]
pub struct Handle {
    to_device: Arc<Queue>,
    from_device: Arc<Queue>,
}

/// Two devices that receive what the other transmits.
///
/// # Errors
/// There are too many open descriptors for the two events.
pub fn pair(first: Capabilities, second: Capabilities) -> io::Result<(MemoryDevice, MemoryDevice)> {
    let (there, back) = (Queue::new()?, Queue::new()?);
    let make = |capabilities, inbound: &Arc<Queue>, outbound: &Arc<Queue>| MemoryDevice {
        capabilities,
        inbound: Arc::clone(inbound),
        outbound: Arc::clone(outbound),
        stats: DeviceStats::default(),
    };
    Ok((make(first, &back, &there), make(second, &there, &back)))
}

/// A device, and the handle with which the caller plays its wire.
///
/// # Errors
/// There are too many open descriptors for the two events.
pub fn queue(capabilities: Capabilities) -> io::Result<(MemoryDevice, Handle)> {
    let (device, other) = pair(capabilities, capabilities)?;
    Ok((device, Handle { to_device: other.outbound, from_device: other.inbound }))
}

impl Handle {
    /// Lets the device receive `frame`; gives it back if the queue is full.
    ///
    /// # Errors
    /// The queue holds [`QUEUE_FRAMES`] frames already.
    pub fn inject(&self, frame: Frame) -> Result<(), Frame> {
        let (checksum, segment_size) = (frame.checksum, frame.segment_size);
        let mut given = Some(frame);
        let pushed = self.to_device.push(checksum, segment_size, |bytes| {
            if let Some(frame) = given.take() {
                *bytes = frame.bytes;
            }
        });
        match given {
            Some(frame) if !pushed => Err(frame),
            _ => Ok(()),
        }
    }

    /// The next frame that the device transmitted.
    pub fn collect(&self) -> Option<Frame> {
        self.from_device.pop()
    }

    /// Becomes readable when there is a frame to collect.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.from_device.arrived.as_fd()
    }
}

impl Device for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        for count in 0..budget {
            let Some(frame) = self.inbound.pop() else { return Ok(count) };
            self.stats.frames_in += 1;
            self.stats.bytes_in += frame.bytes.len() as u64;
            handle(&RxFrame {
                bytes: &frame.bytes,
                checksum: frame.checksum,
                segment_size: frame.segment_size,
            });
            self.inbound.recycle(frame.bytes);
        }
        Ok(budget)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        let must_cut = frame.segmentation != Segmentation::None && self.capabilities.max_segmentation == 0;
        let must_sum = frame.checksum != ChecksumOut::Complete && !self.capabilities.checksum_tx;
        if !must_cut && !must_sum {
            let checksum = match frame.checksum {
                ChecksumOut::Complete => ChecksumIn::Unknown,
                ChecksumOut::Partial { .. } => ChecksumIn::Partial,
            };
            let segment_size = frame.segmentation.segment_size();
            return self.push(checksum, segment_size, frame.headers, frame.payload);
        }
        let mut answer = Ok(());
        let mut sent = 0;
        let medium = self.capabilities.medium;
        let cut = wire::cut::cut(frame, medium, |headers, payload| {
            if answer.is_ok() {
                answer = self.push(ChecksumIn::Unknown, 0, headers, payload);
                sent += usize::from(answer.is_ok());
            }
        });
        if let Err(error) = cut {
            self.stats.errors_out += 1;
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        // Once a piece is out the rest is lost as on a wire: offering the whole again would send the first pieces twice.
        if sent > 0 { Ok(()) } else { answer }
    }

    fn is_ready(&self) -> bool {
        self.outbound.frames().waiting.len() < QUEUE_FRAMES
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbound.arrived.as_fd())
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

impl MemoryDevice {
    fn push(
        &mut self,
        checksum: ChecksumIn,
        segment_size: u16,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> io::Result<()> {
        let length = headers.len() + payload[0].len() + payload[1].len();
        let pushed = self.outbound.push(checksum, segment_size, |bytes| {
            bytes.reserve(length);
            bytes.extend_from_slice(headers);
            bytes.extend_from_slice(payload[0]);
            bytes.extend_from_slice(payload[1]);
        });
        if !pushed {
            self.stats.full += 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stats.frames_out += 1;
        self.stats.bytes_out += length as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ethernet::EthernetAddress;
    use wire::frame::Medium;

    fn plain() -> Capabilities {
        Capabilities {
            medium: Medium::Ip,
            mtu: 1500,
            checksum_tx: false,
            checksum_rx: false,
            max_segmentation: 0,
            hardware_address: EthernetAddress([2, 0, 0, 0, 0, 1]),
        }
    }

    fn transmit(device: &mut MemoryDevice, bytes: &[u8]) -> io::Result<()> {
        device.transmit(&TxFrame {
            headers: bytes,
            payload: [&[], &[]],
            checksum: ChecksumOut::Complete,
            segmentation: Segmentation::None,
        })
    }

    fn readable(descriptor: BorrowedFd<'_>) -> bool {
        let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap() == 1
    }

    #[test]
    fn what_one_end_transmits_the_other_receives_in_order() {
        let (mut left, mut right) = pair(plain(), plain()).unwrap();
        for byte in 0..10 {
            transmit(&mut left, &[byte]).unwrap();
        }
        let mut got = Vec::new();
        assert_eq!(right.receive(4, &mut |frame| got.push(frame.bytes[0])).unwrap(), 4);
        assert_eq!(right.receive(100, &mut |frame| got.push(frame.bytes[0])).unwrap(), 6);
        assert_eq!(got, (0..10).collect::<Vec<_>>());
        assert_eq!(left.stats().frames_out, 10);
        assert_eq!(right.stats().bytes_in, 10);
    }

    #[test]
    fn a_full_queue_refuses_and_keeps_what_it_has() {
        let (mut device, handle) = queue(plain()).unwrap();
        for _ in 0..QUEUE_FRAMES {
            transmit(&mut device, b"x").unwrap();
        }
        assert!(!device.is_ready());
        assert_eq!(transmit(&mut device, b"y").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(std::iter::from_fn(|| handle.collect()).count(), QUEUE_FRAMES);
        assert!(device.is_ready());
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_a_frame_waits() {
        let (mut device, handle) = queue(plain()).unwrap();
        assert!(!readable(device.descriptor().unwrap()));
        handle.inject(Frame::plain(vec![1])).unwrap();
        assert!(readable(device.descriptor().unwrap()));
        assert_eq!(device.receive(8, &mut |_| ()).unwrap(), 1);
        assert!(!readable(device.descriptor().unwrap()));
    }

    #[test]
    fn two_threads_pass_frames_and_sleep_between() {
        const FRAMES: u32 = 20_000;
        let (mut left, mut right) = pair(plain(), plain()).unwrap();
        let sender = std::thread::spawn(move || {
            let mut sent = 0u32;
            while sent < FRAMES {
                match transmit(&mut left, &sent.to_be_bytes()) {
                    Ok(()) => sent += 1,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
        });
        let mut expected = 0u32;
        while expected < FRAMES {
            let received = right
                .receive(64, &mut |frame| {
                    assert_eq!(frame.bytes, expected.to_be_bytes());
                    expected += 1;
                })
                .unwrap();
            if received < 64 && expected < FRAMES {
                let descriptor = right.descriptor().unwrap();
                let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut polled, None).unwrap(), 1);
            }
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_checksum_that_the_device_does_not_complete_is_completed_for_it() {
        let mut headers = [0u8; 28];
        headers[..20].copy_from_slice(&[0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        headers[20..26].copy_from_slice(&[0, 1, 0, 2, 0, 11]);
        let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let protocol = wire::ip::Protocol::UDP;
        let pseudo_header = wire::checksum::Sum::pseudo_header_v4(source, destination, protocol, 11);
        headers[26..28].copy_from_slice(&pseudo_header.fold().to_be_bytes());
        let frame = TxFrame {
            headers: &headers,
            payload: [b"a", b"bc"],
            checksum: ChecksumOut::Partial { start: 20, offset: 6 },
            segmentation: Segmentation::None,
        };
        let (mut device, handle) = queue(plain()).unwrap();
        device.transmit(&frame).unwrap();
        let got = handle.collect().unwrap();
        assert_eq!(got.checksum, ChecksumIn::Unknown);
        assert!(wire::udp::verify(source.into(), destination.into(), &got.bytes[20..]));
        let (mut device, handle) = queue(Capabilities { checksum_tx: true, ..plain() }).unwrap();
        device.transmit(&frame).unwrap();
        let got = handle.collect().unwrap();
        assert_eq!((got.checksum, &got.bytes[..28]), (ChecksumIn::Partial, &headers[..]));
    }
}
