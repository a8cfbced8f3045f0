//! Writes what passes a device to a pcapng file (draft-ietf-opsawg-pcapng) that Wireshark and tshark open.
//!
//! Times have nanosecond resolution and come from the caller's clock. A checksum that was left to the device is filled
//! in in the file, so that a reader has nothing to complain of. A super-segment is written as it passes, whole, unless
//! [`Capture::with_snap_length`] says to keep only the beginning of every frame.

mod pcapng;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use wire::checksum::{self, Place, Sum};
use wire::frame::{Capabilities, ChecksumIn, ChecksumOut, Medium, RxFrame, TxFrame};
use wire::ip::Protocol;
use wire::udp;

use crate::{Device, DeviceStats};
pub use pcapng::{Direction, PcapngWriter};

/// A device that writes every frame it passes to a capture file.
///
/// What is written is buffered; [`Device::flush`] and dropping the device put it out. A failure to write ends the
/// capture, not the traffic: it is kept in [`Capture::error`] and nothing more is written.
#[derive(Debug)]
pub struct Capture<D, W: Write> {
    device: D,
    recorder: Recorder<W>,
}

/// What writes the frames, apart from the device, so that the device can call it while it receives.
#[derive(Debug)]
struct Recorder<W: Write> {
    writer: PcapngWriter<W>,
    unix_nanos: fn() -> u64,
    error: Option<io::Error>,
    /// The beginning of a frame whose checksum is being filled in.
    head: Vec<u8>,
}

impl<D: Device, W: Write> Capture<D, W> {
    /// Captures what passes `device`, stamped by `unix_nanos` (nanoseconds since 1970, UTC).
    ///
    /// # Errors
    /// The head of the file could not be written.
    pub fn new(device: D, file: W, interface: &str, unix_nanos: fn() -> u64) -> io::Result<Self> {
        Self::with_snap_length(device, file, interface, unix_nanos, None)
    }

    /// The same, keeping at most `snap_length` bytes of every frame.
    ///
    /// # Errors
    /// The head of the file could not be written.
    pub fn with_snap_length(
        device: D,
        file: W,
        interface: &str,
        unix_nanos: fn() -> u64,
        snap_length: Option<u32>,
    ) -> io::Result<Self> {
        let writer = PcapngWriter::new(file, device.capabilities().medium, interface, snap_length)?;
        Ok(Self { device, recorder: Recorder { writer, unix_nanos, error: None, head: Vec::new() } })
    }

    /// What ended the capture early, if anything did.
    pub fn error(&self) -> Option<&io::Error> {
        self.recorder.error.as_ref()
    }

    /// The device beneath.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<W: Write> Recorder<W> {
    fn inbound(&mut self, frame: &RxFrame<'_>, medium: Medium) {
        let place = match frame.checksum {
            ChecksumIn::Partial => checksum::locate(frame.bytes, medium),
            ChecksumIn::Unknown | ChecksumIn::Verified => None,
        };
        self.record(Direction::Inbound, [frame.bytes, &[], &[]], place);
    }

    fn outbound(&mut self, frame: &TxFrame<'_>) {
        let place = match frame.checksum {
            ChecksumOut::Complete => None,
            ChecksumOut::Partial { start, offset } => {
                // Which protocol it is does not matter to completing it.
                Some(Place { protocol: Protocol::TCP, start: start.into(), offset: offset.into() })
            }
        };
        self.record(Direction::Outbound, [frame.headers, frame.payload[0], frame.payload[1]], place);
    }

    /// Writes one frame, its checksum filled in at `place`, unless an earlier one could not be written.
    fn record(&mut self, direction: Direction, pieces: [&[u8]; 3], place: Option<Place>) {
        if self.error.is_some() {
            return;
        }
        let nanos = (self.unix_nanos)();
        let [first, second, third] = pieces;
        let pieces = match place {
            Some(place) if place.start + place.offset + 2 <= first.len() => {
                let (head, rest) = first.split_at(place.start + place.offset + 2);
                let sum = Sum::of(&first[place.start..]).add(second).add(third);
                self.head.clear();
                self.head.extend_from_slice(&head[..head.len() - 2]);
                self.head.extend_from_slice(&udp::transmitted(sum.finish()).to_be_bytes());
                [&self.head[..], rest, second, third]
            }
            Some(_) | None => [first, second, third, &[]],
        };
        self.error = self.writer.frame(nanos, direction, &pieces).err();
    }
}

/// Has no noise filter: a capture shows the link as it is.
impl<D: Device, W: Write> Device for Capture<D, W> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, budget: usize, handle: &mut dyn FnMut(&RxFrame<'_>)) -> io::Result<usize> {
        let Self { device, recorder } = self;
        let medium = device.capabilities().medium;
        device.receive(budget, &mut |frame| {
            recorder.inbound(frame, medium);
            handle(frame);
        })
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> io::Result<()> {
        self.device.transmit(frame)?;
        self.recorder.outbound(frame);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.device.is_ready()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.recorder.error.is_none() {
            self.recorder.error = self.recorder.writer.flush().err();
        }
        self.device.flush()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use wire::ethernet::EthernetAddress;
    use wire::frame::Segmentation;

    #[test]
    fn frames_of_both_directions_are_written_and_still_pass() {
        let capabilities = Capabilities {
            medium: Medium::Ip,
            mtu: 1500,
            checksum_tx: true,
            checksum_rx: true,
            max_segmentation: 65_535,
            hardware_address: EthernetAddress([2, 0, 0, 0, 0, 1]),
        };
        let (device, handle) = memory::queue(capabilities).unwrap();
        let mut file = Vec::new();
        {
            let mut capture = Capture::new(device, &mut file, "mem0", || 5).unwrap();
            handle.inject(memory::Frame::plain(vec![0x45; 28])).unwrap();
            let mut received = 0;
            assert_eq!(capture.receive(8, &mut |_| received += 1).unwrap(), 1);
            assert_eq!(received, 1);
            let frame = TxFrame {
                headers: &[0x45; 28],
                payload: [b"ab", b"c"],
                checksum: ChecksumOut::Complete,
                segmentation: Segmentation::None,
            };
            capture.transmit(&frame).unwrap();
            capture.flush().unwrap();
            assert!(capture.error().is_none());
        }
        assert_eq!(handle.collect().unwrap().bytes.len(), 31);
        let blocks = pcapng::tests::blocks(&file);
        assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [0x0A0D_0D0A, 1, 6, 6]);
    }
}
