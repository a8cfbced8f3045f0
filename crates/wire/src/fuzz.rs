//! What a fuzzer calls: any bytes go in, and what must hold of them is asserted.
//!
//! The property tests call these with a fixed number of cases; a coverage-guided target only has to pass its input on.

use core::fmt::Write;

use crate::checksum::{self, Sum};
use crate::frame::{ChecksumOut, Medium, Segmentation, TxFrame};
use crate::summary::Summary;
use crate::view::View;
use crate::{arp, cut, ethernet, icmpv4, ipv4, ipv6, tcp, udp};

/// Gives `bytes` to every parser: none panics, and a header that was understood is the same after it was emitted.
///
/// # Panics
/// If a header is another one after it was emitted and parsed again.
pub fn parsers(bytes: &[u8]) {
    let mut out = [0; 64];
    if let Ok((header, _)) = ethernet::Header::parse(bytes) {
        let len = header.emit(&mut out);
        assert_eq!(ethernet::Header::parse(&out[..len]).map(|parsed| parsed.0), Ok(header));
    }
    if let Ok(packet) = arp::Packet::parse(bytes) {
        let len = packet.emit(&mut out);
        assert_eq!(arp::Packet::parse(&out[..len]), Ok(packet));
    }
    ip(bytes, &mut out);
    if let Ok((header, _)) = udp::Header::parse(bytes) {
        let len = header.emit(&mut out);
        assert_eq!(&out[..len], &bytes[..len]);
    }
    if let Ok((message, data)) = icmpv4::Message::parse_quoted(bytes) {
        let len = message.emit(&mut out, data);
        assert_eq!(icmpv4::Message::parse_quoted(&out[..len]).map(|parsed| parsed.0), Ok(message));
        assert_eq!(Sum::of(&out[..len]).add(data).finish(), 0);
    }
    let _ = icmpv4::Message::parse(bytes);
    if let Ok((header, _)) = tcp::Header::parse(bytes) {
        let len = header.emit(&mut out);
        assert_eq!(len, header.header_len());
        let again = tcp::Header::parse(&out[..len]).map(|parsed| parsed.0);
        assert_eq!(
            again,
            Ok(tcp::Header { options: without_what_did_not_fit(header.options, &again), ..header })
        );
    }
}

/// Options that fill 40 bytes to the last may need more when they are aligned: SACK blocks are left out, the last first, and
/// the fast-open cookie if that is not enough.
fn without_what_did_not_fit<E>(mut options: tcp::Options, emitted: &Result<tcp::Header, E>) -> tcp::Options {
    if let Ok(header) = emitted {
        options.sack.truncate(header.options.sack.len());
        if header.options.fast_open.is_none() && options.sack.is_empty() {
            options.fast_open = None;
        }
    }
    options
}

/// Gives `frame` to everything that looks at whole frames.
pub fn frames(frame: &[u8]) {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let _ = View::parse(frame, medium);
        let _ = write!(Nowhere, "{}", Summary::of(frame, medium));
        if let Some(place) = checksum::locate(frame, medium) {
            let mut copy = [0; 2048];
            let len = frame.len().min(copy.len());
            copy[..len].copy_from_slice(&frame[..len]);
            checksum::complete(&mut copy[..len], place);
        }
    }
}

/// Cuts `payload` behind `headers`, whatever they are, and asserts that all of the payload comes out, in order.
///
/// # Panics
/// If it does not.
pub fn cutter(headers: &[u8], payload: [&[u8]; 2], checksum: ChecksumOut, segmentation: Segmentation) {
    let frame = TxFrame { headers, payload, checksum, segmentation };
    for medium in [Medium::Ethernet, Medium::Ip] {
        let mut at = 0;
        let answer = cut::cut(&frame, medium, |piece_headers, piece| {
            assert_eq!(piece_headers.len(), headers.len());
            let len = piece[0].len() + piece[1].len();
            let expected = cut::slice(payload, at, len);
            assert!(expected.concat() == piece.concat());
            at += len;
        });
        assert!(answer.is_err() || at == frame.payload_len());
    }
}

fn ip(bytes: &[u8], out: &mut [u8; 64]) {
    let _ = ipv4::Packet::parse_quoted(bytes);
    if let Ok(packet) = ipv4::Packet::parse(bytes) {
        let header_len = ipv4::HEADER_LEN + packet.options.len();
        assert_eq!(header_len + packet.payload.len(), usize::from(packet.header.total_len));
        let len = packet.header.emit(out);
        assert_eq!(ipv4::Packet::parse_quoted(&out[..len]).map(|parsed| parsed.header), Ok(packet.header));
    }
    if let Ok((header, _)) = ipv6::Header::parse(bytes) {
        let len = header.emit(out);
        assert_eq!(&out[..len], &bytes[..len]);
    }
}

/// A sink for text that nobody reads.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> core::fmt::Result {
        Ok(())
    }
}
