//! Windows: both directions, closed, small, taken back; and when what is sent.

use anyhow::Result;
use outboard::raw::SocketOption;

use crate::packet::seg;
use crate::script::{Script, full_syn};
use crate::subject::LINGER_0;

/// The sender obeys the peer's window.
pub(crate) fn the_peers_window(s: &mut Script<'_>) -> Result<()> {
    s.say("a window of 1000:");
    let (mut conn, socket) = s.passive(seg("S").mss(500).win(1000))?;
    s.send(&socket, 3000);
    s.settle(&mut conn)?;
    s.say(" acknowledged, the window closes:");
    s.ask(&mut conn, seg(".").win(0))?;
    s.say(" it opens:");
    s.ask(&mut conn, seg(".").win(1000))?;
    s.say(" acknowledged, opens more:");
    s.ask(&mut conn, seg(".").win(5000))?;
    s.set(&socket, LINGER_0)?;
    drop(socket);
    s.say("a window that is taken back:");
    let (mut conn, socket) = s.passive(seg("S").mss(1000))?;
    s.send(&socket, 500);
    s.settle(&mut conn)?;
    s.ask(&mut conn, seg(".").win(2000))?;
    s.send(&socket, 5000);
    s.settle(&mut conn)?;
    s.set(&socket, LINGER_0)?;
    drop(socket);
    s.say("an old segment does not set the window:");
    let (mut conn, socket) = s.passive(seg("S").mss(1000).win(2000))?;
    s.put(&mut conn, seg("P.").len(10))?;
    s.settle_unseen(&mut conn)?;
    s.ask(&mut conn, seg(".").at(-5).win(100))?;
    s.send(&socket, 3000);
    s.settle(&mut conn)?;
    s.set(&socket, LINGER_0)?;
    drop(socket);
    s.say("scaled:");
    let (mut conn, socket) = s.passive(full_syn().win(724).scale(2))?;
    s.send(&socket, 5000);
    s.settle(&mut conn)?;
    s.set(&socket, LINGER_0)?;
    Ok(())
}

/// Small writes: Nagle's algorithm and its exceptions (RFC 9293 §3.7.4).
pub(crate) fn small_writes(s: &mut Script<'_>) -> Result<()> {
    s.say("Nagle:");
    let (mut conn, socket) = s.passive(seg("S").mss(1000))?;
    conn.shows_push = true;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.send(&socket, 20);
    s.settle(&mut conn)?;
    s.say(" a full segment goes:");
    s.send(&socket, 1500);
    s.settle(&mut conn)?;
    s.say(" acknowledged, the rest goes:");
    s.ask(&mut conn, seg("."))?;
    s.say(" what waits goes when it is switched off:");
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.set(&socket, SocketOption::NoDelay(true))?;
    s.settle(&mut conn)?;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.say(" corked:");
    s.set(&socket, SocketOption::Cork(true))?;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.send(&socket, 1000);
    s.settle(&mut conn)?;
    s.set(&socket, SocketOption::Cork(false))?;
    s.settle(&mut conn)?;
    s.say(" what waits goes with the FIN:");
    s.set(&socket, SocketOption::NoDelay(false))?;
    s.send(&socket, 10);
    s.settle(&mut conn)?;
    s.shutdown(&socket, std::net::Shutdown::Write);
    s.settle(&mut conn)?;
    Ok(())
}

/// The receiver's window closes, and opens when the program reads (RFC 9293 §3.8.6).
pub(crate) fn own_window(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive_with(seg("S").mss(1460), &[SocketOption::ReceiveBuffer(8192)])?;
    // The two need not have the same window; so nothing is written down on the way.
    let quiet = s.lines.len();
    let mut sent = 0;
    while conn.edge > conn.nxt && sent < 1000 {
        let room = (conn.edge - conn.nxt).min(1460) as usize;
        s.put(&mut conn, seg("P.").len(room))?;
        s.settle(&mut conn)?;
        sent += 1;
        if s.lines.last().is_some_and(|line| line.contains("nothing")) {
            // A delayed acknowledgement; ask for it.
            s.put(&mut conn, seg(".").at(-2000))?;
            s.settle(&mut conn)?;
        }
    }
    s.lines.truncate(quiet);
    s.say(format!("the window is closed: {}", conn.edge == conn.nxt));
    let shown = |s: &mut Script<'_>, conn: &mut crate::script::Conn, what: &str, segment| -> Result<()> {
        let (before, at) = (s.lines.len(), conn.nxt);
        let count = s.ask(conn, segment)?;
        let last = s.lines.last().cloned().unwrap_or_default();
        s.lines.truncate(before);
        s.say(format!(
            "{what}: answers {count}, acknowledges all {}, window closed {}",
            last.contains(&format!("ack {at}")),
            last.contains("win 0")
        ));
        conn.nxt = at;
        Ok(())
    };
    shown(s, &mut conn, "a byte into the closed window", seg("P.").len(1))?;
    shown(s, &mut conn, "a probe", seg(".").at(-1))?;
    shown(s, &mut conn, "a probe with an old byte", seg(".").at(-1).len(1))?;
    shown(s, &mut conn, "a probe behind the edge", seg(".").at(1))?;
    shown(s, &mut conn, "a FIN behind the edge", seg("F.").at(1))?;
    shown(s, &mut conn, "an acknowledgement", seg("."))?;
    s.say("a small read opens nothing:");
    s.recv(&socket, 10)?;
    s.settle(&mut conn)?;
    s.say("reading all opens it:");
    let before = s.lines.len();
    while s.recv(&socket, 100_000)? > 0 {}
    s.lines.truncate(before);
    let updates = s.settle(&mut conn)?;
    s.lines.truncate(before);
    s.say(format!("updates {}, the window is open {}", updates.min(1), conn.edge > conn.nxt));
    Ok(())
}
