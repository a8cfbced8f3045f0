//! What a listener does with a segment (RFC 9293 §3.10.7.2).

use wire::tcp::Flags;

use crate::segment::SegmentIn;

/// The verdict on a segment for LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenVerdict {
    /// A SYN: make a connection of it by [`crate::Connection::accept`].
    Open,
    /// Answer it with [`crate::reset_for`].
    Reset,
    /// Drop it.
    Ignore,
}

/// Classifies a segment that reached a listener and no connection.
pub fn classify(segment: &SegmentIn<'_>) -> ListenVerdict {
    let flags = segment.header.flags;
    if flags.contains(Flags::RST) {
        ListenVerdict::Ignore // first
    } else if flags.contains(Flags::ACK) {
        ListenVerdict::Reset // second
    } else if flags.contains(Flags::SYN) && !flags.contains(Flags::FIN) {
        ListenVerdict::Open // third
    } else {
        ListenVerdict::Ignore // fourth
    }
}
