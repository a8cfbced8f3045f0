//! The options of SYN and segment (RFC 9293 §3.2, RFC 7323, RFC 2018), and what headers say beside them.

use anyhow::Result;

use crate::packet::{Seg, seg};
use crate::script::{Script, full_syn};

/// What a SYN-ACK answers to SYNs with all kinds of options.
pub(crate) fn answers_to_syns(s: &mut Script<'_>) -> Result<()> {
    let syns: &[(&str, Seg)] = &[
        ("no options", seg("S")),
        ("MSS", seg("S").mss(1460)),
        ("MSS 0", seg("S").mss(0)),
        ("MSS 1", seg("S").mss(1)),
        ("MSS 65535", seg("S").mss(65_535)),
        ("window scale 0", seg("S").mss(1460).scale(0)),
        ("window scale 14", seg("S").mss(1460).scale(14)),
        ("window scale 15", seg("S").mss(1460).scale(15)),
        ("window scale 255", seg("S").mss(1460).scale(255)),
        ("timestamps", seg("S").mss(1460).stamps(77, 0)),
        ("timestamps with an echo", seg("S").mss(1460).stamps(77, 99)),
        ("timestamps of zero", seg("S").mss(1460).stamps(0, 0)),
        ("SACK permitted", seg("S").mss(1460).sack_permitted()),
        ("SACK and scale", seg("S").mss(1460).sack_permitted().scale(3)),
        ("everything", full_syn()),
        ("SACK blocks on a SYN", seg("S").mss(1460).sack_permitted().sack(&[(5, 10)])),
        ("window 0", full_syn().win(0)),
        ("window 1", full_syn().win(1)),
        ("ECN", {
            let mut syn = full_syn();
            syn.flags |= seg("EW").flags;
            syn
        }),
        ("ECE alone", {
            let mut syn = full_syn();
            syn.flags |= seg("E").flags;
            syn
        }),
        ("PSH and URG", {
            let mut syn = full_syn();
            syn.flags |= seg("PU").flags;
            syn.urgent(3)
        }),
        ("end of options first", seg("S").raw_options(&[0, 2, 4, 5, 180])),
        ("length 0", seg("S").raw_options(&[2, 0, 5, 180])),
        ("length 1", seg("S").raw_options(&[2, 1, 5, 180])),
        ("MSS of length 3", seg("S").raw_options(&[2, 3, 5, 4, 2])),
        ("MSS of length 5", seg("S").raw_options(&[2, 5, 5, 180, 0, 4, 2])),
        ("an option longer than the header", seg("S").raw_options(&[4, 2, 2, 40])),
        ("an unknown option", seg("S").raw_options(&[200, 6, 1, 2, 3, 4, 4, 2])),
        ("an unknown option of length 0", seg("S").raw_options(&[200, 0, 1, 2, 4, 2])),
        ("many NOPs", seg("S").raw_options(&[1; 36])),
        ("kind without a length", seg("S").raw_options(&[1, 1, 1, 2])),
        ("MSS twice", seg("S").raw_options(&[2, 4, 2, 0, 2, 4, 4, 0])),
        ("timestamps of a wrong length", seg("S").raw_options(&[8, 8, 0, 0, 0, 1, 0, 0])),
        ("SACK permitted of length 3", seg("S").raw_options(&[4, 3, 0, 1])),
        ("window scale of length 4", seg("S").raw_options(&[3, 4, 7, 1])),
        ("AccECN, TFO and user timeout", seg("S").raw_options(&[34, 2, 28, 4, 0, 60, 172, 2])),
    ];
    for (name, syn) in syns {
        s.say(format!("{name}:"));
        let mut conn = s.conn();
        let listener = s.listen(&conn)?;
        let segment_size = s.ask(&mut conn, syn.clone());
        segment_size?;
        s.ask(&mut conn, seg("."))?;
        if let Some(socket) = s.accept(&listener)? {
            // How large are segments towards such a peer?
            s.send(&socket, 3000);
            s.settle(&mut conn)?;
            s.set(&socket, crate::subject::LINGER_0)?;
        }
    }
    Ok(())
}

/// What a connecting program makes of the SYN-ACK's options.
pub(crate) fn answers_to_ours(s: &mut Script<'_>) -> Result<()> {
    let answers: &[(&str, Seg)] = &[
        ("no options", seg("S.")),
        ("MSS 100", seg("S.").mss(100)),
        ("timestamps only", seg("S.").mss(1460).stamps(500, 0)),
        ("scale only", seg("S.").mss(1460).scale(2)),
        ("SACK only", seg("S.").mss(1460).sack_permitted()),
        ("a small window", seg("S.").mss(1460).win(100)),
        ("a scale that does not count on the SYN-ACK", seg("S.").mss(1460).scale(7).win(100)),
    ];
    for (name, answer) in answers {
        s.say(format!("{name}:"));
        let (mut conn, socket) = s.active(answer.clone())?;
        s.poll(&socket)?;
        s.send(&socket, 3000);
        s.settle(&mut conn)?;
        s.set(&socket, crate::subject::LINGER_0)?;
    }
    Ok(())
}

/// Options on data: malformed, unknown, and where they were not agreed on.
pub(crate) fn options_on_data(s: &mut Script<'_>) -> Result<()> {
    let segments: &[(&str, Seg)] = &[
        ("timestamps that were not agreed on", seg("P.").len(10).stamps(5, 5)),
        ("length 0", seg("P.").len(10).raw_options(&[8, 0, 0, 0])),
        ("length 1", seg("P.").len(10).raw_options(&[8, 1, 0, 0])),
        ("beyond the header", seg("P.").len(10).raw_options(&[8, 40, 0, 0])),
        ("unknown", seg("P.").len(10).raw_options(&[253, 4, 1, 2])),
        ("a new MSS", seg("P.").len(10).mss(100)),
        ("SACK of a wrong length", seg("P.").len(10).raw_options(&[1, 1, 5, 9, 1, 2, 3, 4, 5, 6, 7])),
        ("SACK of what was not sent", seg("P.").len(10).sack(&[(5000, 6000)])),
    ];
    for (agreed, syn) in [("nothing agreed", seg("S").mss(1460)), ("all agreed", full_syn())] {
        for (name, segment) in segments {
            s.say(format!("{agreed}, {name}:"));
            let (mut conn, socket) = s.passive(syn.clone())?;
            let mut segment = segment.clone();
            if segment.raw_options.is_some() || syn.options.timestamps.is_none() {
                segment = segment.without_stamps();
            }
            s.ask(&mut conn, segment)?;
            s.recv(&socket, 100)?;
            s.send(&socket, 2000);
            s.settle(&mut conn)?;
            s.set(&socket, crate::subject::LINGER_0)?;
        }
    }
    Ok(())
}

/// Timestamps: PAWS, and which one is echoed (RFC 7323 §4.3 and §5).
pub(crate) fn timestamps(s: &mut Script<'_>) -> Result<()> {
    let cases: &[(&str, Seg)] = &[
        ("an older one on data", seg("P.").len(10).stamps(900, 0)),
        ("an older one on a bare acknowledgement", seg(".").stamps(900, 0)),
        ("an older one on a reset", seg("R.").stamps(900, 0)),
        ("an older one on a FIN", seg("F.").stamps(900, 0)),
        ("an older one on a SYN", seg("S").stamps(900, 0)),
        ("the same", seg("P.").len(10).stamps(1001, 0)),
        ("half the circle ahead", seg("P.").len(10).stamps(1001 + (1 << 31) - 1, 0)),
        ("more than half the circle ahead", seg("P.").len(10).stamps(1001 + (1 << 31) + 10, 0)),
        ("none on data", seg("P.").len(10).without_stamps()),
        ("none on a reset", seg("R.").without_stamps()),
        ("none on a FIN", seg("F.").without_stamps()),
    ];
    for (name, segment) in cases {
        s.say(format!("{name}:"));
        let (mut conn, socket) = s.passive(full_syn())?;
        let nxt = conn.nxt;
        s.ask(&mut conn, segment.clone())?;
        s.poll(&socket)?;
        conn.nxt = nxt;
        conn.stamp = Some(2000);
        s.ask(&mut conn, seg("P.").len(20))?;
        s.recv(&socket, 100)?;
        s.set(&socket, crate::subject::LINGER_0)?;
    }
    s.say("a gap: the segment before it is echoed until it is filled:");
    let (mut conn, _socket) = s.passive(full_syn())?;
    s.ask(&mut conn, seg("P.").len(10).stamps(1100, 0))?;
    s.ask(&mut conn, seg("P.").at(10).len(10).stamps(1200, 0))?;
    s.ask(&mut conn, seg("P.").at(20).len(10).stamps(1300, 0))?;
    s.ask(&mut conn, seg("P.").len(10).stamps(1250, 0))?;
    s.ask(&mut conn, seg("P.").at(20).len(10).stamps(1400, 0))?;
    Ok(())
}

/// Selective acknowledgements by the receiver: which blocks, in which order (RFC 2018 §4, RFC 2883 §4).
pub(crate) fn sack_blocks(s: &mut Script<'_>) -> Result<()> {
    for (name, syn) in [
        ("without timestamps", seg("S").mss(1460).sack_permitted()),
        ("with timestamps", full_syn()),
        ("not agreed on", seg("S").mss(1460)),
    ] {
        s.say(format!("{name}:"));
        let (mut conn, socket) = s.passive(syn)?;
        for offset in [10, 30, 50] {
            s.ask(&mut conn, seg("P.").at(offset).len(10))?;
        }
        s.say(" a block grows:");
        s.ask(&mut conn, seg("P.").at(40).len(5))?;
        s.say(" a duplicate:");
        s.ask(&mut conn, seg("P.").at(50).len(10))?;
        s.say(" overlapping a block:");
        s.ask(&mut conn, seg("P.").at(5).len(8))?;
        s.say(" the first gap is filled:");
        s.ask(&mut conn, seg("P.").len(5))?;
        s.say(" old data:");
        s.ask(&mut conn, seg("P.").at(-5).len(5))?;
        s.say(" old and new data:");
        s.ask(&mut conn, seg("P.").at(10).len(15))?;
        s.say(" more blocks than there is room for:");
        for offset in [70, 90, 110, 130] {
            s.ask(&mut conn, seg("P.").at(offset).len(10))?;
        }
        s.say(" everything at once:");
        s.ask(&mut conn, seg("P.").at(0).len(150))?;
        s.recv(&socket, 500)?;
    }
    Ok(())
}

/// When data is acknowledged (RFC 5681 §4.2).
pub(crate) fn acknowledgements(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive(seg("S").mss(1460))?;
    // An exchange: no longer the quick acknowledgements of the start.
    s.put(&mut conn, seg("P.").len(100))?;
    s.fence()?;
    s.recv(&socket, 200)?;
    s.send(&socket, 50);
    s.settle_unseen(&mut conn)?;
    s.put(&mut conn, seg("."))?;
    s.say("one small segment:");
    s.ask(&mut conn, seg("P.").len(10))?;
    s.wait(&mut conn, &[20, 500])?;
    s.say("two full segments:");
    s.put(&mut conn, seg(".").len(1460))?;
    s.settle_unseen(&mut conn)?; // the first may be acknowledged, too
    s.ask(&mut conn, seg(".").len(1460))?;
    s.recv(&socket, 10_000)?;
    s.settle_unseen(&mut conn)?;
    s.say("out of order:");
    s.ask(&mut conn, seg(".").at(1460).len(1460))?;
    s.say("the gap is filled:");
    s.ask(&mut conn, seg(".").len(1460))?;
    s.say("the answer carries the acknowledgement:");
    conn.nxt += 1460;
    s.recv(&socket, 10_000)?;
    s.settle_unseen(&mut conn)?;
    s.put(&mut conn, seg("P.").len(10))?;
    s.settle_unseen(&mut conn)?;
    s.recv(&socket, 100)?;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    Ok(())
}
