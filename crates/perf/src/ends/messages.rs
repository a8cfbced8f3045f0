//! Messages of one size, one way: each is sent by one call, and received as one.

use std::io::{self, Read, Write};
use std::time::Instant;

use super::client::Thread;
use super::connection::{Connection, Datagrams};
use super::data::check_message;
use super::outcome::Part;
use super::pace::{self, Pace};
use super::{Plan, Verify};

/// The client's end over TCP.
pub(super) fn send(mut connection: &Connection, thread: &Thread<'_>) -> io::Result<Part> {
    let mut part = each(thread, |message| connection.write_all(message))?;
    connection.finish()?;
    // The server closes when it has everything.
    connection.drain()?;
    part.ended = Instant::now();
    Ok(part)
}

/// The client's end over UDP.
pub(super) fn send_datagrams(socket: &Datagrams, thread: &Thread<'_>) -> io::Result<Part> {
    each(thread, |message| match socket.send(message) {
        // The kernel tells so that a datagram found no server before; it counts among the lost.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => other.map(drop),
    })
}

/// Sends messages until the load is over.
fn each(thread: &Thread<'_>, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Part> {
    let plan = thread.plan;
    let pace = thread.rate().map(|rate| Pace::new(thread.window.began, rate));
    let mut part = Part::default();
    let mut message = vec![0; plan.request_bytes as usize];
    let mut begun = 0;
    loop {
        let due = pace.map_or_else(Instant::now, |pace| pace.due(begun));
        if thread.is_over(begun, due) {
            return Ok(part);
        }
        let began = pace::begin(pace.as_ref(), begun, plan.client_spins);
        message.fill(begun as u8);
        send(&message)?;
        thread.done(&mut part, began, Instant::now(), plan.request_bytes, 0);
        begun += 1;
    }
}

/// The server's end over TCP.
pub(super) fn receive(plan: &Plan, mut connection: &Connection) -> io::Result<Part> {
    let mut part = Part::default();
    let mut message = vec![0; plan.request_bytes as usize];
    loop {
        let first = connection.read(&mut message)?;
        if first == 0 {
            break;
        }
        connection.read_exact(&mut message[first..])?;
        check_message(plan.verify, &message, part.operations as u8)?;
        part.count(plan.request_bytes, plan.request_bytes);
        part.ended = Instant::now();
    }
    part.verified = plan.verify == Verify::Pattern;
    Ok(part)
}
