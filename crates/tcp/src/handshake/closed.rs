//! The answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1).

use base::SeqNumber;
use wire::tcp::{Flags, Header, Options};

use crate::segment::{Ecn, SegmentIn, SegmentOut};

/// The reset that answers `segment`; `None` if it is a reset itself.
pub fn reset_for(segment: &SegmentIn<'_>) -> Option<SegmentOut> {
    let header = &segment.header;
    if header.flags.contains(Flags::RST) {
        return None;
    }
    let (seq, ack, flags) = if header.flags.contains(Flags::ACK) {
        (header.ack, SeqNumber(0), Flags::RST)
    } else {
        (SeqNumber(0), header.seq + segment.sequence_len(), Flags::RST | Flags::ACK)
    };
    Some(SegmentOut {
        header: Header {
            src_port: header.dst_port,
            dst_port: header.src_port,
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
            options: Options::default(),
        },
        offset: 0,
        len: 0,
        segment_size: 1,
        ecn: Ecn::NotEct,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Instant;

    fn segment(flags: Flags, payload: &[u8]) -> SegmentIn<'_> {
        let header = Header {
            src_port: 1,
            dst_port: 2,
            seq: SeqNumber(100),
            ack: SeqNumber(500),
            flags,
            window: 10,
            urgent: 0,
            options: Options::default(),
        };
        SegmentIn { header, payload, arrival: Instant::ZERO, segment_count: 1, ecn: Ecn::NotEct }
    }

    #[test]
    fn follows_the_three_cases() {
        assert!(reset_for(&segment(Flags::RST, b"")).is_none());
        let answer = reset_for(&segment(Flags::ACK, b"abc")).unwrap().header;
        assert_eq!((answer.seq, answer.flags, answer.dst_port), (SeqNumber(500), Flags::RST, 1));
        let answer = reset_for(&segment(Flags::SYN, b"abc")).unwrap().header;
        assert_eq!((answer.seq, answer.ack), (SeqNumber(0), SeqNumber(104)));
        assert_eq!(answer.flags, Flags::RST | Flags::ACK);
    }
}
