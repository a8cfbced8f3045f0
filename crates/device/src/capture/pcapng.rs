//! The pcapng format (draft-ietf-opsawg-pcapng-03): a section header, one interface, then one packet block a frame.

use std::io::{self, BufWriter, Write};

use wire::frame::Medium;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;

const LINKTYPE_ETHERNET: u16 = 1;
const LINKTYPE_RAW: u16 = 101;

const OPT_END: u16 = 0;
const OPT_SHB_USERAPPL: u16 = 4;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_EPB_FLAGS: u16 = 2;

/// Ten to the minus nine: nanoseconds.
const NANOSECONDS: u8 = 9;

/// Bytes of an enhanced packet block besides the frame and its padding: fixed fields 32, flags option 8, end 4.
const PACKET_OVERHEAD: usize = 32 + 8 + 4;

/// Bytes collected before they are written.
const BUFFER: usize = 1 << 20;

/// Which way a frame went, as the low bits of `epb_flags` say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by the device.
    Inbound = 1,
    /// Transmitted by the device.
    Outbound = 2,
}

/// Writes one section with one interface.
#[derive(Debug)]
pub struct PcapngWriter<W: Write> {
    out: BufWriter<W>,
    /// Bytes kept of every frame.
    snap_length: usize,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file for frames of `medium` on the interface called `interface`, of which at most `snap_length` bytes
    /// each are kept.
    ///
    /// # Errors
    /// The head could not be written.
    pub fn new(file: W, medium: Medium, interface: &str, snap_length: Option<u32>) -> io::Result<Self> {
        let mut writer = Self {
            out: BufWriter::with_capacity(BUFFER, file),
            snap_length: snap_length
                .filter(|&length| length > 0)
                .map_or(usize::MAX, |length| length as usize),
        };
        let mut section = Vec::new();
        section.extend_from_slice(&BYTE_ORDER_MAGIC.to_ne_bytes());
        section.extend_from_slice(&1u16.to_ne_bytes());
        section.extend_from_slice(&0u16.to_ne_bytes());
        section.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(&mut section, OPT_SHB_USERAPPL, concat!("outboard ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(&mut section, OPT_END, &[]);
        writer.block(SECTION_HEADER, &section)?;

        let link_type = match medium {
            Medium::Ethernet => LINKTYPE_ETHERNET,
            Medium::Ip => LINKTYPE_RAW,
        };
        let mut description = Vec::new();
        description.extend_from_slice(&link_type.to_ne_bytes());
        description.extend_from_slice(&0u16.to_ne_bytes());
        // Zero: no limit.
        description.extend_from_slice(&snap_length.unwrap_or(0).to_ne_bytes());
        option(&mut description, OPT_IF_NAME, interface.as_bytes());
        option(&mut description, OPT_IF_TSRESOL, &[NANOSECONDS]);
        option(&mut description, OPT_END, &[]);
        writer.block(INTERFACE_DESCRIPTION, &description)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Writes one frame, given in pieces.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn frame(&mut self, unix_nanos: u64, direction: Direction, pieces: &[&[u8]]) -> io::Result<()> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let kept = length.min(self.snap_length);
        let padding = kept.wrapping_neg() % 4;
        let total = (PACKET_OVERHEAD + kept + padding) as u32;
        let mut head = [0; 28];
        let fields = [
            ENHANCED_PACKET,
            total,
            0,
            (unix_nanos >> 32) as u32,
            unix_nanos as u32,
            kept as u32,
            length as u32,
        ];
        for (slot, field) in head.chunks_exact_mut(4).zip(fields) {
            slot.copy_from_slice(&field.to_ne_bytes());
        }
        self.out.write_all(&head)?;
        let mut room = kept;
        for piece in pieces {
            let piece = &piece[..piece.len().min(room)];
            self.out.write_all(piece)?;
            room -= piece.len();
        }
        self.out.write_all(&[0; 3][..padding])?;
        self.out.write_all(&OPT_EPB_FLAGS.to_ne_bytes())?;
        self.out.write_all(&4u16.to_ne_bytes())?;
        self.out.write_all(&(direction as u32).to_ne_bytes())?;
        self.out.write_all(&[0; 4])?;
        self.out.write_all(&total.to_ne_bytes())
    }

    /// Hands everything written so far to the file.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let total = (12 + body.len()) as u32;
        self.out.write_all(&kind.to_ne_bytes())?;
        self.out.write_all(&total.to_ne_bytes())?;
        self.out.write_all(body)?;
        self.out.write_all(&total.to_ne_bytes())
    }
}

/// Appends an option, padded to four bytes.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_ne_bytes());
    body.extend_from_slice(&(value.len() as u16).to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The blocks of a file: kind and body, with both lengths of each checked.
    pub(in super::super) fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let total = word(&file[4..]) as usize;
            assert_eq!(total % 4, 0);
            assert_eq!(word(&file[total - 4..]) as usize, total);
            blocks.push((word(file), file[8..total - 4].to_vec()));
            file = &file[total..];
        }
        blocks
    }

    #[test]
    fn every_frame_length_is_padded_and_readable() {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::new(&mut file, Medium::Ethernet, "tap0", None).unwrap();
        for length in 0..9 {
            writer.frame(u64::from(u32::MAX) + 7, Direction::Outbound, &[&vec![9; length]]).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        let blocks = blocks(&file);
        assert_eq!(blocks.len(), 2 + 9);
        for (length, (kind, body)) in blocks[2..].iter().enumerate() {
            assert_eq!(*kind, ENHANCED_PACKET);
            assert_eq!(u32::from_ne_bytes(body[4..8].try_into().unwrap()), 1, "high half of the time");
            assert_eq!(u32::from_ne_bytes(body[12..16].try_into().unwrap()) as usize, length);
            assert_eq!(&body[20..20 + length], vec![9; length]);
        }
    }
}
