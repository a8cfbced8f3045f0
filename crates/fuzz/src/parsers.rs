//! The parsers of what comes from the wire and from the control socket.

use channel::control::{Answer, Request};

use crate::input::Input;

/// Bytes of a TCP header without options.
const HEADER_LEN: usize = 20;

/// TCP options: at most 40 bytes of them, in a header that is as long as it says.
///
/// # Panics
/// If what was understood is not the same after it was emitted.
pub fn options(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(40)];
    let words = (HEADER_LEN + bytes.len()).div_ceil(4);
    let mut segment = vec![0; HEADER_LEN];
    segment[12] = (words as u8) << 4;
    segment.extend_from_slice(bytes);
    segment.resize(words * 4, 0);
    wire::fuzz::parsers(&segment);
    // What was emitted once, fits: it does not change any more.
    let emitted = emit(&wire::tcp::Options::parse(bytes));
    assert_eq!(emit(&wire::tcp::Options::parse(&emitted)), emitted);
}

fn emit(options: &wire::tcp::Options) -> Vec<u8> {
    let mut out = vec![0; options.emitted_len()];
    options.emit(&mut out);
    out
}

/// Frames and packets of every kind, and the cutter of super-segments.
///
/// # Panics
/// If what was understood is not the same after it was emitted, or the cutter loses a byte.
pub fn packets(bytes: &[u8]) {
    use wire::frame::{ChecksumOut, Segmentation};
    wire::fuzz::frames(bytes);
    for start in [0, 14, 20, 34, 40, 54] {
        wire::fuzz::parsers(bytes.get(start..).unwrap_or(&[]));
    }
    let mut input = Input::new(bytes);
    let (kind, segment_size) = (input.byte(), input.u16());
    let segmentation = match kind & 3 {
        0 => Segmentation::None,
        1 => Segmentation::Tcp4 { segment_size },
        2 => Segmentation::Tcp6 { segment_size },
        _ => Segmentation::Udp { segment_size },
    };
    let (start, offset) = (input.u16(), input.u16());
    let checksum = if kind & 4 == 0 { ChecksumOut::Complete } else { ChecksumOut::Partial { start, offset } };
    let (headers, first) = (input.take(usize::from(kind >> 1)), usize::from(input.u16()));
    let payload = [input.take(first), input.rest()];
    wire::fuzz::cutter(headers, payload, checksum, segmentation);
}

/// Messages on the control socket, and entries of the command and event rings.
///
/// # Panics
/// If what was understood is not the same after it was encoded.
pub fn messages(bytes: &[u8]) {
    for kind in [&b""[..], b"HELLO   ", b"WAITER  ", b"WELCOME ", b"BELL    ", b"REFUSED "] {
        let message = [kind, bytes].concat();
        if let Some(Ok(request)) = Request::decode(&message) {
            // One of another version is understood as far as the version only.
            let again = Request::decode(&request.encode());
            assert_eq!(again, Some(Ok(request)));
        }
        if let Some(answer) = Answer::decode(&message) {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }
    channel::fuzz::entries(bytes);
}
