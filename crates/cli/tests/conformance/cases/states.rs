//! Every state against every kind of segment (RFC 9293 §3.10.7, RFC 5961).

use anyhow::{Context, Result};

use crate::packet::{Seg, seg};
use crate::script::{Conn, Script, full_syn};
use crate::subject::{LINGER_0, Sock};
use std::net::Shutdown;

/// A connection in some state, with what belongs to it.
struct Situation {
    conn: Conn,
    socket: Option<Sock>,
    _listener: Option<Sock>,
}

type Setup = fn(&mut Script<'_>) -> Result<Situation>;
type Make = fn(&Conn) -> Seg;

/// Segments relative to where the connection stands.
const SEGMENTS: &[(&str, Make)] = &[
    ("data", |_| seg("P.").len(10)),
    ("old data", |_| seg("P.").at(-10).len(10)),
    ("half old data", |_| seg("P.").at(-5).len(10)),
    ("later data", |_| seg("P.").at(20).len(10)),
    ("data beyond the window", |c| seg("P.").seq(c.edge + 1).len(10)),
    ("data at the edge", |c| seg("P.").seq(c.edge).len(10)),
    ("a window probe", |_| seg(".").at(-1)),
    ("an old byte", |_| seg(".").at(-1).len(1)),
    ("an acknowledgement beyond the window", |c| seg(".").seq(c.edge + 1)),
    ("an acknowledgement", |_| seg(".")),
    ("an acknowledgement of what was not sent", |c| seg(".").ack(c.rcv + 1000)),
    ("data with an acknowledgement of what was not sent", |c| seg("P.").ack(c.rcv + 1000).len(10)),
    ("data with an old acknowledgement", |c| seg("P.").ack(c.rcv - 1).len(10)),
    ("data with a very old acknowledgement", |c| seg("P.").ack(c.rcv - 1_000_000).len(10)),
    ("data without an acknowledgement", |_| seg("P").len(10)),
    ("no flags at all", |_| seg("")),
    ("no flags, data", |_| seg("").len(10)),
    ("reset", |_| seg("R").at(0)),
    ("reset with an acknowledgement", |_| seg("R.").at(0)),
    ("reset in the window", |_| seg("R").at(10)),
    ("reset one before", |_| seg("R").at(-1)),
    ("reset at the edge", |c| seg("R").seq(c.edge)),
    ("reset beyond the window", |c| seg("R").seq(c.edge + 10)),
    ("reset with a wrong acknowledgement", |c| seg("R.").at(0).ack(c.rcv + 1000)),
    ("SYN", |_| seg("S").at(0)),
    ("SYN in the window", |_| seg("S").at(10)),
    ("the first SYN again", |_| seg("S").seq(0)),
    ("SYN beyond the window", |c| seg("S").seq(c.edge + 100)),
    ("SYN with an acknowledgement", |c| seg("S.").seq(0).ack(c.rcv)),
    ("SYN and FIN", |_| seg("SF").at(0)),
    ("SYN and reset", |_| seg("SR").at(0)),
    ("FIN", |_| seg("F.")),
    ("FIN with data", |_| seg("FP.").len(10)),
    ("FIN later", |_| seg("F.").at(10)),
    ("old FIN", |_| seg("F.").at(-1)),
    ("FIN without an acknowledgement", |_| seg("F")),
    ("FIN beyond the window", |c| seg("F.").seq(c.edge + 10)),
    ("urgent", |_| seg("UP.").len(10).urgent(5)),
    ("urgent beyond the data", |_| seg("UP.").len(10).urgent(500)),
    ("a wrong checksum", |_| seg("P.").at(0).len(10).bad_checksum()),
    ("a reset with a wrong checksum", |_| seg("R").at(0).bad_checksum()),
    ("a header that is too short", |_| seg("P.").at(0).len(10).data_offset(4)),
    ("a header that is longer than the segment", |_| seg("P.").at(0).len(10).data_offset(15)),
];

fn table(s: &mut Script<'_>, setup: Setup) -> Result<()> {
    for (name, make) in SEGMENTS {
        let quiet = s.lines.len();
        let mut situation = setup(s)?;
        if *name != SEGMENTS[0].0 {
            s.lines.truncate(quiet); // the way there is the same for all
        }
        s.say(format!("{name}:"));
        let conn = &mut situation.conn;
        let segment = make(conn);
        s.ask(conn, segment)?;
        if let Some(socket) = &situation.socket {
            s.poll(socket)?;
            s.error(socket)?;
            s.recv(socket, 100)?;
        }
        // What it answers to this tells its state.
        s.say(" and then:");
        let probe = if conn.stamp.is_some() { seg(".").at(-30) } else { seg(".").at(-30).len(1) };
        s.ask(conn, probe)?;
        if let Some(socket) = situation.socket {
            s.set(&socket, LINGER_0)?;
        }
    }
    Ok(())
}

fn situation(conn: Conn, socket: Sock) -> Situation {
    Situation { conn, socket: Some(socket), _listener: None }
}

pub(crate) fn closed(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let mut conn = s.conn();
        conn.pretend();
        (conn.nxt, conn.rcv, conn.edge) = (1000, 500, 10_000);
        Ok(Situation { conn, socket: None, _listener: None })
    })
}

pub(crate) fn listen(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let mut conn = s.conn();
        let listener = s.listen(&conn)?;
        conn.pretend();
        (conn.nxt, conn.rcv, conn.edge) = (1000, 500, 10_000);
        Ok(Situation { conn, socket: None, _listener: Some(listener) })
    })
}

pub(crate) fn syn_sent(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = s.syn_sent()?;
        (conn.nxt, conn.edge) = (1, 10_000);
        Ok(situation(conn, socket))
    })
}

fn half_open(s: &mut Script<'_>, syn: Seg) -> Result<Situation> {
    let mut conn = s.conn();
    let listener = s.listen(&conn)?;
    if syn.options.timestamps.is_some() {
        conn.stamp = Some(1000);
    }
    s.ask(&mut conn, syn)?;
    Ok(Situation { conn, socket: None, _listener: Some(listener) })
}

pub(crate) fn syn_received(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| half_open(s, seg("S").mss(1460)))
}

pub(crate) fn syn_received_simultaneous(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = s.syn_sent()?;
        conn.stamp = Some(1000);
        s.ask(&mut conn, full_syn())?;
        Ok(situation(conn, socket))
    })
}

fn open(s: &mut Script<'_>) -> Result<(Conn, Sock)> {
    let pair = s.passive(seg("S").mss(1460))?;
    exchange(s, pair)
}

/// Some bytes each way, so that the numbers before those that are expected are of this connection, too.
fn exchange(s: &mut Script<'_>, pair: (Conn, Sock)) -> Result<(Conn, Sock)> {
    let (mut conn, socket) = pair;
    s.put(&mut conn, seg("P.").len(100))?;
    s.fence()?;
    s.recv(&socket, 200)?;
    s.send(&socket, 50);
    s.settle_unseen(&mut conn)?;
    s.ask(&mut conn, seg("."))?;
    Ok((conn, socket))
}

pub(crate) fn established(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| open(s).map(|(conn, socket)| situation(conn, socket)))
}

pub(crate) fn established_with_timestamps(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let pair = s.passive(full_syn())?;
        let (conn, socket) = exchange(s, pair)?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn established_actively(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let pair = s.active(seg("S.").mss(1460))?;
        let (conn, socket) = exchange(s, pair)?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn established_with_data_in_flight(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = open(s)?;
        s.send(&socket, 100);
        s.settle(&mut conn)?;
        Ok(situation(conn, socket))
    })
}

fn shut(s: &mut Script<'_>) -> Result<(Conn, Sock)> {
    let (mut conn, socket) = open(s)?;
    s.shutdown(&socket, Shutdown::Write);
    s.settle(&mut conn)?;
    Ok((conn, socket))
}

pub(crate) fn fin_wait_1(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = shut(s)?;
        conn.rcv -= 1; // the FIN is not acknowledged
        Ok(situation(conn, socket))
    })
}

pub(crate) fn fin_wait_2(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = shut(s)?;
        s.ask(&mut conn, seg("."))?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn closing(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = shut(s)?;
        conn.rcv -= 1;
        s.ask(&mut conn, seg("F."))?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn time_wait(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = shut(s)?;
        s.ask(&mut conn, seg("."))?;
        s.ask(&mut conn, seg("F."))?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn close_wait(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = open(s)?;
        s.put(&mut conn, seg("F."))?;
        s.settle_unseen(&mut conn)?;
        Ok(situation(conn, socket))
    })
}

pub(crate) fn last_ack(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| {
        let (mut conn, socket) = open(s)?;
        s.put(&mut conn, seg("F."))?;
        s.settle_unseen(&mut conn)?;
        s.shutdown(&socket, Shutdown::Write);
        s.settle(&mut conn)?;
        conn.rcv -= 1;
        Ok(situation(conn, socket))
    })
}

/// The same states when no program holds the socket any more.
fn orphan(s: &mut Script<'_>, before: &[Seg], after: &[Seg], unacknowledged: bool) -> Result<Situation> {
    let (mut conn, socket) = open(s)?;
    for segment in before {
        s.put(&mut conn, segment.clone())?;
        s.settle_unseen(&mut conn)?;
    }
    drop(socket);
    s.settle(&mut conn)?;
    if unacknowledged {
        conn.rcv -= 1;
    }
    for segment in after {
        s.ask(&mut conn, segment.clone())?;
    }
    Ok(Situation { conn, socket: None, _listener: None })
}

pub(crate) fn orphan_fin_wait_1(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| orphan(s, &[], &[], true))
}

pub(crate) fn orphan_fin_wait_2(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| orphan(s, &[], &[seg(".")], false))
}

pub(crate) fn orphan_closing(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| orphan(s, &[], &[seg("F.")], true))
}

pub(crate) fn orphan_last_ack(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| orphan(s, &[seg("F.")], &[], true))
}

pub(crate) fn orphan_time_wait(s: &mut Script<'_>) -> Result<()> {
    table(s, |s| orphan(s, &[], &[seg("."), seg("F.")], false))
}

/// Ends that reset, and resets that end.
pub(crate) fn resets(s: &mut Script<'_>) -> Result<()> {
    s.say("linger 0:");
    let (mut conn, socket) = open(s)?;
    s.set(&socket, LINGER_0)?;
    drop(socket);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("."))?;
    s.say("linger 0 with data in flight:");
    let (mut conn, socket) = open(s)?;
    s.set(&socket, LINGER_0)?;
    s.send(&socket, 100);
    s.settle(&mut conn)?;
    drop(socket);
    s.settle(&mut conn)?;
    s.say("unread data:");
    let (mut conn, socket) = open(s)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    drop(socket);
    s.settle(&mut conn)?;
    s.say("unread data and FIN:");
    let (mut conn, socket) = open(s)?;
    s.ask(&mut conn, seg("FP.").len(10))?;
    drop(socket);
    s.settle(&mut conn)?;
    s.say("data in both directions, half read:");
    let (mut conn, socket) = open(s)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.recv(&socket, 5)?;
    s.send(&socket, 7);
    s.settle(&mut conn)?;
    drop(socket);
    s.settle(&mut conn)?;
    s.say("data after close:");
    let (mut conn, socket) = open(s)?;
    drop(socket);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.say("data after shutdown of reading:");
    let (mut conn, socket) = open(s)?;
    s.shutdown(&socket, Shutdown::Read);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.poll(&socket)?;
    s.recv(&socket, 100)?;
    s.send(&socket, 5);
    s.settle(&mut conn)?;
    s.say("a listener is closed with a connection that nobody took:");
    let mut conn = s.conn();
    let listener = s.listen(&conn)?;
    s.ask(&mut conn, seg("S").mss(1460))?;
    s.ask(&mut conn, seg("."))?;
    let mut half = s.conn();
    half.port = conn.port;
    s.ask(&mut half, seg("S").mss(1460))?;
    drop(listener);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.ask(&mut half, seg("."))?;
    Ok(())
}

/// Orders of events that the tables have not.
pub(crate) fn sequences(s: &mut Script<'_>) -> Result<()> {
    s.say("simultaneous open:");
    let (mut conn, socket) = s.syn_sent()?;
    s.ask(&mut conn, full_syn())?;
    s.ask(&mut conn, seg("S.").seq(0).mss(1460))?;
    s.poll(&socket)?;
    s.ask(&mut conn, seg("P.").len(5))?;
    s.recv(&socket, 100)?;
    s.say("simultaneous open, ended by an acknowledgement:");
    let (mut conn, socket) = s.syn_sent()?;
    conn.stamp = Some(1000);
    s.ask(&mut conn, full_syn())?;
    s.ask(&mut conn, seg("."))?;
    s.poll(&socket)?;
    s.say("simultaneous close:");
    let (mut conn, socket) = shut(s)?;
    conn.rcv -= 1;
    s.ask(&mut conn, seg("F."))?;
    conn.rcv += 1;
    s.ask(&mut conn, seg("."))?;
    s.poll(&socket)?;
    drop(socket);
    s.ask(&mut conn, seg(".").at(-1))?;
    s.say("FIN before its data:");
    let (mut conn, socket) = open(s)?;
    s.ask(&mut conn, seg("FP.").at(10).len(10))?;
    s.poll(&socket)?;
    s.ask(&mut conn, seg("P.").len(10))?;
    s.poll(&socket)?;
    s.recv(&socket, 100)?;
    s.recv(&socket, 100)?;
    s.say("half-close, the other direction goes on:");
    let (mut conn, socket) = open(s)?;
    s.ask(&mut conn, seg("F."))?;
    s.send(&socket, 20);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("."))?;
    s.shutdown(&socket, Shutdown::Write);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("."))?;
    s.poll(&socket)?;
    s.ask(&mut conn, seg(".").at(-1))?;
    Ok(())
}

/// Data and repetitions while a connection is opened, and one that succeeds another.
pub(crate) fn openings(s: &mut Script<'_>) -> Result<()> {
    s.say("a SYN-ACK with data, and one with FIN:");
    let (mut conn, socket) = s.syn_sent()?;
    s.ask(&mut conn, seg("S.").mss(1460).len(5))?;
    s.poll(&socket)?;
    s.recv(&socket, 100)?;
    s.say("a SYN with data:");
    let mut conn = s.conn();
    let listener = s.listen(&conn)?;
    s.ask(&mut conn, seg("S").mss(1460).len(5))?;
    conn.nxt = 1;
    s.ask(&mut conn, seg("P.").len(5))?;
    let socket = s.accept(&listener)?.context("accepted")?;
    s.recv(&socket, 100)?;
    s.say("the handshake's acknowledgement is lost, data comes:");
    let mut conn = s.conn();
    let listener = s.listen(&conn)?;
    s.ask(&mut conn, seg("S").mss(1460))?;
    s.ask(&mut conn, seg("FP.").len(5))?;
    let socket = s.accept(&listener)?.context("accepted")?;
    s.recv(&socket, 100)?;
    s.recv(&socket, 100)?;
    s.say("the same SYN again and again:");
    let mut conn = s.conn();
    let _listener = s.listen(&conn)?;
    s.ask(&mut conn, full_syn())?;
    s.ask(&mut conn, full_syn().seq(0))?;
    s.ask(&mut conn, full_syn().seq(0))?;
    s.say("a new SYN for a connection in TIME-WAIT:");
    let mut conn = s.conn();
    let listener = s.listen(&conn)?;
    s.ask(&mut conn, seg("S").mss(1460))?;
    s.ask(&mut conn, seg("."))?;
    let socket = s.accept(&listener)?.context("accepted")?;
    s.shutdown(&socket, Shutdown::Write);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg("F."))?;
    drop(socket);
    let mut again = conn.reborn(100_000);
    s.ask(&mut again, seg("S").mss(1460))?;
    s.ask(&mut again, seg("."))?;
    s.accept(&listener)?;
    Ok(())
}
