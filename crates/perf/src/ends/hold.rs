//! Connections that are opened, held and replaced, oldest first, and found alive at the end.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Said;
use super::client::Thread;
use super::connection::{Connection, Listener, Net};
use super::control::{Order, say};
use super::outcome::Part;
use super::pace::{self, Pace};
use super::server::Session;

/// Without churn, and with nothing to end it: looks whether it is over are so far apart.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The client's end: opens, replaces, and asks each for a sign of life. Without a duration it holds for ever.
pub(super) fn run(
    net: &Net,
    address: SocketAddr,
    thread: &Thread<'_>,
    control: &Connection,
    tell: &(dyn Fn(Said) + Sync),
) -> io::Result<Part> {
    let plan = thread.plan;
    let mut part = Part::timed()?;
    let mut held = VecDeque::new();
    let open = |held: &mut VecDeque<Connection>, part: &mut Part, began: Instant| -> io::Result<()> {
        held.push_back(net.connect_as(address, plan)?);
        thread.done(part, began, Instant::now(), 0, 0);
        Ok(())
    };
    let ramp = plan.rate_per_second.map(|rate| Pace::new(thread.window.began, rate));
    for number in 0..plan.connections {
        let began = pace::begin(ramp.as_ref(), number, false);
        open(&mut held, &mut part, began)?;
    }
    let up = Instant::now();
    tell(Said::Held(plan.connections));
    let until = plan.whole_duration().map(|duration| up + duration);
    let churn = plan.churn_per_second.map(|rate| Pace::new(up, rate));
    let mut replaced = 0;
    loop {
        let due = churn.map(|churn| churn.due(replaced));
        let next = due.unwrap_or_else(|| until.unwrap_or_else(|| Instant::now() + FOR_EVER));
        if until.is_some_and(|until| Instant::now() >= until || (churn.is_some() && next >= until)) {
            break;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if let Some(due) = due {
            open(&mut held, &mut part, due)?;
            held.pop_front();
            replaced += 1;
        }
    }
    if let Some(until) = until {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
    part.ended = Instant::now();
    let ramp_seconds = (up - thread.window.began).as_secs_f64();
    part.details.insert("ramp_seconds".to_owned(), ramp_seconds);
    part.details.insert("ramp_connections_per_second".to_owned(), plan.connections as f64 / ramp_seconds);
    part.details.insert("held_connections".to_owned(), held.len() as f64);
    part.details.insert("replaced_connections".to_owned(), replaced as f64);
    prove(&held, control)?;
    Ok(part)
}

/// Each connection says a byte and hears it again.
fn prove(held: &VecDeque<Connection>, control: &Connection) -> io::Result<()> {
    for (number, mut connection) in held.iter().enumerate() {
        connection.write_all(&[number as u8])?;
    }
    say(control, &Order::End)?;
    for (number, mut connection) in held.iter().enumerate() {
        let mut byte = [0];
        connection.read_exact(&mut byte)?;
        if byte[0] != number as u8 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a held connection answers for another"));
        }
    }
    Ok(())
}

/// The server's end: keeps as many as the plan says, and lets the oldest go for another.
pub(super) fn serve(session: &Session<'_>, listener: &Listener) -> io::Result<Part> {
    let mut part = Part::default();
    let mut held = VecDeque::new();
    // Those that were accepted after the end, and answered at once.
    let mut late = Vec::new();
    loop {
        let connection = listener.accept()?;
        if session.is_over.load(Ordering::SeqCst) {
            // At the end comes one that says nothing (`serve_streams`), after all that the client has opened.
            if !echo(&connection)? {
                break;
            }
            late.push(connection);
        } else {
            held.push_back(connection);
        }
        part.operations += 1;
        if (held.len() + late.len()) as u64 > session.plan.connections
            && let Some(oldest) = held.pop_front()
        {
            oldest.drain()?;
        }
    }
    for connection in &held {
        // A client that has gone proves nothing.
        part.verified &= echo(connection)?;
    }
    part.ended = Instant::now();
    Ok(part)
}

/// Says the byte that it hears; false: there was none.
fn echo(mut connection: &Connection) -> io::Result<bool> {
    let mut byte = [0];
    if connection.read(&mut byte)? == 0 {
        return Ok(false);
    }
    connection.write_all(&byte).map(|()| true)
}
