//! Where the stack's frames go: into the device, which may be full.

use std::io;

use device::Device;
use stack::{FrameSink, InterfaceId, SinkFull};
use wire::frame::{ChecksumOut, Segmentation, TxFrame};

/// A frame that the device refused since it was full, kept until it takes it.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    headers: usize,
    checksum: ChecksumOut,
    segmentation: Segmentation,
}

/// What the worker remembers of its device between two turns.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    kept: Option<Kept>,
}

impl Backlog {
    /// The device was full when it was tried last.
    pub(crate) fn is_blocked(&self) -> bool {
        self.kept.is_some()
    }

    /// Offers the kept frame again; false if the device is still full.
    pub(crate) fn retry(&mut self, device: &mut impl Device) -> bool {
        let Some(kept) = &self.kept else { return true };
        let (headers, payload) = kept.bytes.split_at(kept.headers);
        let frame = TxFrame {
            headers,
            payload: [payload, &[]],
            checksum: kept.checksum,
            segmentation: kept.segmentation,
        };
        if is_full(&device.transmit(&frame)) {
            return false;
        }
        self.kept = None;
        true
    }
}

/// The sink of one round of transmission.
pub(crate) struct DeviceSink<'a, D> {
    pub(crate) device: &'a mut D,
    pub(crate) backlog: &'a mut Backlog,
}

impl<D: Device> FrameSink for DeviceSink<'_, D> {
    fn ready(&self, _: InterfaceId) -> bool {
        !self.backlog.is_blocked() && self.device.is_ready()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        if self.backlog.is_blocked() {
            return Err(SinkFull);
        }
        if is_full(&self.device.transmit(frame)) {
            // The stack has counted it as sent already; so it is kept rather than lost.
            let bytes = [frame.headers, frame.payload[0], frame.payload[1]].concat();
            self.backlog.kept = Some(Kept {
                bytes,
                headers: frame.headers.len(),
                checksum: frame.checksum,
                segmentation: frame.segmentation,
            });
        }
        Ok(())
    }
}

/// A device's error other than being full loses the frame, as a wire may; the device counts it.
fn is_full(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
