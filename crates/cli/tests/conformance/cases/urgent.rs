//! Urgent data (RFC 9293 §3.8.5, RFC 6093): what a pointer means to the receiver, and what a sender makes of it.

use anyhow::Result;
use outboard::raw::SocketOption;

use crate::packet::{Seg, seg};
use crate::script::{Conn, Script};
use crate::subject::{LINGER_0, Sock};

fn opened(s: &mut Script<'_>, heading: &str) -> Result<(Conn, Sock)> {
    let begins = s.lines.len();
    let (conn, socket) = s.passive(seg("S").mss(1000))?;
    s.lines.truncate(begins); // the way there is the same for all
    s.say(format!("{heading}:"));
    Ok((conn, socket))
}

/// All that a program can learn, then two reads.
fn learn(s: &mut Script<'_>, socket: &Sock) -> Result<()> {
    s.poll(socket)?;
    s.at_mark(socket)?;
    s.recv_urgent(socket);
    s.recv(socket, 100)?;
    s.at_mark(socket)?;
    s.poll(socket)?;
    s.recv(socket, 100)?;
    s.recv_urgent(socket);
    s.at_mark(socket)
}

fn end(s: &mut Script<'_>, socket: &Sock) -> Result<()> {
    s.set(socket, LINGER_0)
}

/// One segment each.
pub(crate) fn pointers(s: &mut Script<'_>) -> Result<()> {
    let segments: [(&str, Seg); 13] = [
        ("the last byte", seg("UP.").len(10).urgent(10)),
        ("the first byte", seg("UP.").len(10).urgent(1)),
        ("a pointer of zero", seg("UP.").len(10).urgent(0)),
        ("in the middle", seg("UP.").len(10).urgent(5)),
        ("right behind", seg("UP.").len(10).urgent(11)),
        ("far away", seg("UP.").len(10).urgent(65_535)),
        ("one byte alone", seg("UP.").len(1).urgent(1)),
        ("without data", seg("U.").urgent(1)),
        ("without data, far", seg("U.").urgent(40_000)),
        ("without the flag", seg("P.").len(10).urgent(5)),
        ("on a FIN", seg("UFP.").len(10).urgent(5)),
        ("on a FIN, behind it", seg("UFP.").len(10).urgent(50)),
        ("in data of which half is old", seg("UP.").at(-5).len(10).urgent(3)),
    ];
    for (name, segment) in segments {
        let (mut conn, socket) = opened(s, name)?;
        // A FIN is acknowledged at once here, and later by Linux: that is compared elsewhere.
        s.put(&mut conn, segment)?;
        s.settle_unseen(&mut conn)?;
        learn(s, &socket)?;
        end(s, &socket)?;
    }
    Ok(())
}

/// Several segments.
pub(crate) fn marks(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = opened(s, "announced, then sent")?;
    s.ask(&mut conn, seg("U.").urgent(20))?;
    learn(s, &socket)?;
    s.put(&mut conn, seg("P.").len(10))?;
    s.put(&mut conn, seg("P.").len(20))?;
    s.settle_unseen(&mut conn)?;
    learn(s, &socket)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "out of order")?;
    s.ask(&mut conn, seg("UP.").at(10).len(10).urgent(5))?;
    learn(s, &socket)?;
    s.ask(&mut conn, seg("P.").at(0).len(10))?;
    learn(s, &socket)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "two, neither read")?;
    s.put(&mut conn, seg("UP.").len(1).urgent(1))?;
    s.put(&mut conn, seg("UP.").len(1).urgent(1))?;
    s.settle_unseen(&mut conn)?;
    learn(s, &socket)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "two apart")?;
    s.put(&mut conn, seg("UP.").len(10).urgent(4))?;
    s.put(&mut conn, seg("UP.").len(10).urgent(4))?;
    s.settle_unseen(&mut conn)?;
    learn(s, &socket)?;
    s.recv(&socket, 100)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "an older pointer")?;
    s.put(&mut conn, seg("UP.").len(10).urgent(30))?;
    s.put(&mut conn, seg("UP.").len(10).urgent(5))?;
    s.put(&mut conn, seg("P.").len(20))?;
    s.settle_unseen(&mut conn)?;
    learn(s, &socket)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "sent again")?;
    s.put(&mut conn, seg("UP.").len(10).urgent(10))?;
    s.settle_unseen(&mut conn)?;
    s.recv_urgent(&socket);
    s.recv(&socket, 100)?;
    s.ask(&mut conn, seg("UP.").at(-10).len(10).urgent(10))?;
    learn(s, &socket)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "in line")?;
    s.set(&socket, SocketOption::UrgentInline(true))?;
    s.put(&mut conn, seg("UP.").len(10).urgent(4))?;
    s.settle_unseen(&mut conn)?;
    learn(s, &socket)?;
    end(s, &socket)
}

/// What goes out.
pub(crate) fn sending(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = opened(s, "one byte")?;
    s.send_urgent(&socket, 1);
    s.settle(&mut conn)?;
    s.say(" the next, the first not acknowledged:");
    s.send_urgent(&socket, 1);
    s.settle(&mut conn)?;
    s.say(" plain data behind:");
    s.send(&socket, 5);
    s.settle(&mut conn)?;
    s.say(" acknowledged:");
    s.ask(&mut conn, seg("."))?;
    s.send(&socket, 5);
    s.settle(&mut conn)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "segments")?;
    s.send_urgent(&socket, 3500);
    s.settle(&mut conn)?;
    s.say(" then plain ones:");
    s.set(&socket, SocketOption::NoDelay(true))?;
    s.send(&socket, 2500);
    s.settle(&mut conn)?;
    s.say(" in part acknowledged:");
    s.ask(&mut conn, seg(".").ack(2001))?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "corked")?;
    s.set(&socket, SocketOption::Cork(true))?;
    s.send(&socket, 5);
    s.settle(&mut conn)?;
    s.send_urgent(&socket, 1);
    s.settle(&mut conn)?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "the peer's window is closed")?;
    conn.window = Some(0);
    s.ask(&mut conn, seg("."))?;
    s.send_urgent(&socket, 10);
    s.settle(&mut conn)?;
    for _ in 0..2 {
        s.wait(&mut conn, &[1500])?;
    }
    conn.window = Some(1000);
    s.ask(&mut conn, seg("."))?;
    end(s, &socket)?;

    let (mut conn, socket) = opened(s, "then the end")?;
    s.send_urgent(&socket, 10);
    s.settle(&mut conn)?;
    s.shutdown(&socket, std::net::Shutdown::Write);
    s.settle(&mut conn)?;
    s.send_urgent(&socket, 1);
    s.settle(&mut conn)?;
    end(s, &socket)
}
