//! Where Outboard does something else than Linux on purpose, and why. What it does instead is checked.

/// A block of a case that may differ.
pub(crate) struct Deviation {
    /// Cases whose names begin so.
    case: &'static str,
    headings: &'static [&'static str],
    /// What Outboard's block contains.
    says: &'static str,
    /// Why; for the reader.
    _why: &'static str,
}

const fn deviation(
    case: &'static str,
    headings: &'static [&'static str],
    says: &'static str,
    why: &'static str,
) -> Deviation {
    Deviation { case, headings, says, _why: why }
}

const DEVIATIONS: &[Deviation] = &[
    deviation(
        "",
        &["urgent"],
        "  poll IN|OUT|",
        "after a FIN an urgent pointer means nothing (RFC 9293 §3.10.7.4, sixth)",
    ),
    deviation(
        "",
        &[
            "FIN",
            "FIN with data",
            "none on a FIN",
            "unread data and FIN",
            "half-close, the other direction goes on",
            "the handshake's acknowledgement is lost, data comes",
        ],
        "ack ",
        "a FIN is acknowledged at once; Linux takes its time",
    ),
    deviation(
        "answers_to_syns",
        &["ECE alone"],
        "> SW. 0+0 ack 1",
        "bits of a SYN that nobody knows yet are answered as a request for accurate feedback (RFC 9768 §3.1.3)",
    ),
    deviation(
        "",
        &["FIN later"],
        "ack 1",
        "a FIN behind a gap is no data: neither reported selectively nor, after a close, answered with a reset",
    ),
    deviation(
        "syn_sent",
        &["SYN", "SYN in the window", "the first SYN again", "SYN beyond the window", "SYN and FIN"],
        "<mss 1460>",
        "a SYN-ACK carries only what the SYN carried (RFC 7323 §2.2 and §3.2, RFC 2018 §2)",
    ),
    deviation(
        "syn_received",
        &["SYN", "SYN in the window", "SYN and FIN"],
        "> nothing",
        "a SYN in the window returns a passive open to LISTEN, without a reset (RFC 9293 §3.10.7.4)",
    ),
    deviation(
        "syn_received_simultaneous",
        &["reset", "reset with an acknowledgement", "reset with a wrong acknowledgement", "SYN and reset"],
        "error Connection refused",
        "an active open is refused, also if the other end opens, too (RFC 9293 §3.10.7.4, second)",
    ),
    deviation(
        "syn_received_simultaneous",
        &["data with an old acknowledgement"],
        "> R ",
        "an acknowledgement of nothing does not establish a connection (RFC 9293 §3.10.7.4, fifth)",
    ),
    deviation(
        "syn_received_simultaneous",
        &["old data", "data at the edge", "an old byte", "old FIN", "half old data"],
        "ack 1",
        "a segment outside the window is not used for its acknowledgement (RFC 9293 §3.10.7.4, first)",
    ),
    deviation(
        "syn_received_simultaneous",
        &["the first SYN again"],
        "> S. 0+0 ack 1",
        "a repeated SYN has not seen the SYN-ACK: it is sent again",
    ),
    deviation(
        "sequences",
        &["simultaneous open"],
        "ack 1 <ecr 1000>",
        "the SYN of a SYN-ACK in a simultaneous open is no duplicate to be reported",
    ),
    deviation(
        "established_with_timestamps",
        &["old data", "an old byte", "old FIN"],
        "ecr 1003",
        "a segment before the window brings no timestamp (RFC 7323 §5.3 R2 comes before R3)",
    ),
    deviation(
        "established_with_timestamps",
        &["data with an old acknowledgement"],
        "ecr 1004",
        "data that is accepted brings its timestamp, whatever it acknowledges (RFC 7323 §4.3)",
    ),
    deviation(
        "established_with_data_in_flight",
        &["data with a very old acknowledgement"],
        "recv Resource temporarily unavailable",
        "RFC 5961 §5.2 also on Linux's fast path",
    ),
    deviation(
        "",
        &["reset one before"],
        "> nothing",
        "a reset counts at RCV.NXT only (RFC 5961 §3), after a FIN, too",
    ),
    deviation(
        "",
        &["half old data", "data at the edge"],
        "> . ",
        "what comes after a FIN is not used and does no harm (RFC 9293 §3.10.7.4, seventh)",
    ),
    deviation(
        "close_wait",
        &["a window probe"],
        "ack 102",
        "an unacceptable segment is acknowledged, although an acknowledgement is due anyway",
    ),
    deviation(
        "time_wait",
        &["reset", "reset with an acknowledgement", "reset with a wrong acknowledgement", "SYN and reset"],
        "ack 102",
        "a reset does not end TIME-WAIT (RFC 1337)",
    ),
    deviation(
        "time_wait",
        &["an acknowledgement of what was not sent", "reset in the window", "reset at the edge"],
        "> . 52+0 ack 102",
        "challenged as in any other state (RFC 5961)",
    ),
    deviation(
        "time_wait",
        &["data without an acknowledgement", "no flags, data", "FIN without an acknowledgement"],
        "> nothing",
        "a segment without an acknowledgement is dropped (RFC 9293 §3.10.7.4, fifth)",
    ),
    deviation(
        "orphan_fin_wait_2",
        &[
            "an acknowledgement of what was not sent",
            "data with an acknowledgement of what was not sent",
            "data with a very old acknowledgement",
            "reset in the window",
            "reset at the edge",
            "SYN",
            "SYN in the window",
            "SYN and FIN",
        ],
        "> . 52+0 ack 101",
        "FIN-WAIT-2 without a program is challenged as with one (RFC 5961); Linux keeps a stub that is not",
    ),
    deviation("orphan_fin_wait_2", &["reset beyond the window"], "> nothing", "the same"),
    deviation(
        "orphan_time_wait",
        &["reset", "reset with an acknowledgement", "reset with a wrong acknowledgement", "SYN and reset"],
        "ack 102",
        "a reset does not end TIME-WAIT (RFC 1337)",
    ),
    deviation("syn_received_simultaneous", &["SYN with an acknowledgement"], "ack 1 <ecr 1000>", "the same"),
    deviation(
        "arp",
        &["from a group's hardware address"],
        "> nothing",
        "nobody has such an address (RFC 1122 §2.3.2)",
    ),
    deviation("malformed_arp", &["hardware type 6"], "> nothing", "Ethernet is type 1 (RFC 826)"),
    deviation(
        "messages",
        &["type 13"],
        "> nothing",
        "timestamp requests may stay without an answer (RFC 1122 §3.2.2.8)",
    ),
    deviation(
        "addresses",
        &[
            "echo from the network's broadcast",
            "UDP to a closed port from the network's broadcast",
            "TCP to a closed port from the network's broadcast",
            "an unknown protocol from the network's broadcast",
        ],
        "> nothing",
        "a broadcast address is no source (RFC 1122 §3.2.1.3)",
    ),
    deviation(
        "addresses",
        &["echo, to its address in a broadcast frame"],
        "> nothing",
        "a packet for one host in a frame for all is dropped (RFC 1122 §3.3.6)",
    ),
];

/// Whether this block differs on purpose.
pub(crate) fn is_intended(case: &str, outboard: &[&str]) -> bool {
    let Some(heading) = outboard.first().and_then(|heading| heading.strip_suffix(':')) else { return false };
    DEVIATIONS.iter().any(|deviation| {
        case.starts_with(deviation.case)
            && deviation.headings.contains(&heading)
            && outboard.iter().any(|line| line.contains(deviation.says))
    })
}
