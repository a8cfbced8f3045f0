//! What is said without being asked: retransmissions, probes, keepalives, and their backing off.

use std::time::{Duration, Instant};

use anyhow::Result;
use outboard::raw::SocketOption;

use crate::packet::seg;
use crate::script::Script;

/// No program takes longer to close a connection whose end is acknowledged.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nothing answers a SYN, nor a SYN-ACK (RFC 6298 §2.1 and §5.7).
pub(crate) fn handshake(s: &mut Script<'_>) -> Result<()> {
    s.say("SYN:");
    let (mut conn, _socket) = s.syn_sent()?;
    s.wait(&mut conn, &[700, 1600])?;
    s.wait(&mut conn, &[1600, 3000])?;
    s.say("SYN-ACK:");
    let mut conn = s.conn();
    let _listener = s.listen(&conn)?;
    s.ask(&mut conn, seg("S").mss(1460))?;
    s.wait(&mut conn, &[700, 1600])?;
    Ok(())
}

/// Nothing acknowledges data, nor the FIN (RFC 6298 §5).
pub(crate) fn retransmission(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive(seg("S").mss(1460))?;
    s.send(&socket, 100);
    s.settle(&mut conn)?;
    s.wait(&mut conn, &[150, 600])?;
    s.wait(&mut conn, &[300, 900])?;
    s.say("acknowledged, it is quiet:");
    s.ask(&mut conn, seg("."))?;
    s.wait(&mut conn, &[600])?;
    s.say("FIN:");
    s.shutdown(&socket, std::net::Shutdown::Write);
    s.settle(&mut conn)?;
    s.wait(&mut conn, &[100, 900])?;
    Ok(())
}

/// A closed window is probed (RFC 9293 §3.8.6.1), and what was held back goes when it opens.
pub(crate) fn probes(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive(seg("S").mss(1460))?;
    s.send(&socket, 100);
    s.settle(&mut conn)?;
    conn.window = Some(0);
    s.ask(&mut conn, seg("."))?;
    s.send(&socket, 300);
    s.settle(&mut conn)?;
    for _ in 0..2 {
        let before = s.lines.len();
        s.wait(&mut conn, &[100, 1500])?;
        // With a byte of data or without one: both are allowed.
        let when = s.lines.pop().unwrap_or_default();
        s.lines.truncate(before);
        s.say(format!("a probe{when}"));
        conn.rcv = 101;
        s.put(&mut conn, seg("."))?;
        s.settle_unseen(&mut conn)?;
    }
    conn.window = None;
    conn.rcv = 101;
    s.say("it opens:");
    s.ask(&mut conn, seg("."))?;
    Ok(())
}

/// Keepalive, until nobody is there (RFC 9293 §3.8.4).
pub(crate) fn keepalive(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive(seg("S").mss(1460))?;
    s.set(&socket, SocketOption::KeepAliveIdle(Duration::from_secs(1)))?;
    s.set(&socket, SocketOption::KeepAliveInterval(Duration::from_secs(1)))?;
    s.set(&socket, SocketOption::KeepAliveProbes(2))?;
    s.set(&socket, SocketOption::KeepAlive(true))?;
    s.wait(&mut conn, &[600, 1700])?;
    s.say("answered, it starts anew:");
    s.ask(&mut conn, seg("."))?;
    s.wait(&mut conn, &[600, 1700])?;
    s.say("not answered:");
    s.wait(&mut conn, &[600, 1700])?;
    s.wait(&mut conn, &[600, 1700])?;
    s.poll(&socket)?;
    s.error(&socket)?;
    Ok(())
}

/// A close that waits (`SO_LINGER`): the end of the stream does not wait for the acknowledgement of what precedes it.
pub(crate) fn lingering(s: &mut Script<'_>) -> Result<()> {
    let (mut conn, socket) = s.passive(seg("S").mss(1460))?;
    s.set(&socket, SocketOption::Linger(Some(Duration::from_secs(600))))?;
    s.send(&socket, 100);
    s.settle(&mut conn)?;
    let closing = std::thread::spawn(move || drop(socket));
    let began = Instant::now();
    while conn.rcv < 102 && began.elapsed() < PATIENCE {
        s.settle_unseen(&mut conn)?;
    }
    s.say(format!("sent up to {}", conn.rcv));
    conn.rcv = 102;
    s.put(&mut conn, seg("."))?;
    while !closing.is_finished() && began.elapsed() < 2 * PATIENCE {
        s.settle_unseen(&mut conn)?;
    }
    s.say(format!("closed {}", closing.is_finished()));
    Ok(())
}
