//! Bytes, as many as go, at either end of a connection.
//!
//! Each direction ends with the sender's end of stream. The server closes when both are done, so the client's last read
//! tells that the server has everything.

use std::io;
use std::time::{Duration, Instant};

use super::client::Thread;
use super::connection::Connection;
use super::data::Data;
use super::outcome::{Part, Window};
use super::tally::Count;
use super::{Flow, Plan};

/// The client's end. `counts` has one for each direction.
pub(super) fn run(connection: &Connection, thread: &Thread<'_>, counts: &[Count]) -> io::Result<Part> {
    let (plan, window) = (thread.plan, thread.window);
    let last = &counts[counts.len() - 1];
    match plan.flow {
        Flow::Download => receive(plan, connection, window, &counts[0]),
        Flow::Upload => {
            let mut part = send(plan, connection, window, &counts[0])?;
            connection.drain()?;
            part.ended = Instant::now();
            Ok(part)
        }
        Flow::Both => {
            both(|| send(plan, connection, window, &counts[0]), || receive(plan, connection, window, last))
        }
    }
}

/// The server's end. It counts everything: what is omitted, the client knows.
pub(super) fn serve(plan: &Plan, connection: &Connection) -> io::Result<Part> {
    let window = Window { counts_from: Instant::now(), ..Window::begin(plan) };
    let counts = [Count::default(), Count::default()];
    match plan.flow {
        Flow::Download => {
            let part = send(plan, connection, window, &counts[0])?;
            // The client closes first, when it has everything: so the closing is no part of the transfer.
            connection.drain()?;
            Ok(part)
        }
        Flow::Upload => receive(plan, connection, window, &counts[0]),
        Flow::Both => both(
            || {
                // Not yet the end of the stream: the client learns with it that all it sent has come.
                send_bytes(plan, connection, window, &counts[0])
            },
            || receive(plan, connection, window, &counts[1]),
        ),
    }
}

/// Both directions at a time, each on a thread.
fn both(
    send: impl FnOnce() -> io::Result<Part> + Send,
    receive: impl FnOnce() -> io::Result<Part>,
) -> io::Result<Part> {
    std::thread::scope(|scope| {
        let sends = scope.spawn(send);
        let received = receive();
        let sent = match sends.join() {
            Ok(sent) => sent?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let received = received?;
        Ok(Part {
            operations: sent.operations + received.operations,
            bytes: sent.bytes + received.bytes,
            own_work_seconds: sent.own_work_seconds + received.own_work_seconds,
            ended: sent.ended.max(received.ended),
            ..received
        })
    })
}

/// Sends, and says that it was all.
fn send(plan: &Plan, connection: &Connection, window: Window, count: &Count) -> io::Result<Part> {
    let part = send_bytes(plan, connection, window, count)?;
    connection.finish()?;
    Ok(part)
}

fn send_bytes(plan: &Plan, connection: &Connection, window: Window, count: &Count) -> io::Result<Part> {
    let mut part = Part { operations: 1, ..Part::default() };
    let mut data = Data::new(plan.verify);
    let mut left = plan.stream_bytes.unwrap_or(u64::MAX);
    let bytes = &mut part.bytes;
    connection.send(&mut Vec::new(), plan.chunk_bytes as usize, |space| {
        let now = Instant::now();
        // Something is always sent that counts, however late.
        if *bytes > 0 && window.is_over(now) {
            return 0;
        }
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(space.len());
        data.make(&mut space[..size]);
        left -= size as u64;
        count.add(0, size as u64);
        if now >= window.counts_from {
            *bytes += size as u64;
        }
        size
    })?;
    part.own_work_seconds = data.seconds();
    part.ended = Instant::now();
    Ok(part)
}

fn receive(plan: &Plan, connection: &Connection, window: Window, count: &Count) -> io::Result<Part> {
    let mut part = Part { operations: 1, ..Part::default() };
    let mut data = Data::new(plan.verify);
    let mut last = Instant::now();
    let (mut stall, mut bytes, mut ended) = (Duration::ZERO, 0, last);
    let total = connection.receive(&mut Vec::new(), plan.chunk_bytes as usize, None, |piece| {
        let now = Instant::now();
        stall = stall.max(now - last);
        data.take(piece);
        count.add(0, piece.len() as u64);
        if now >= window.counts_from {
            bytes += piece.len() as u64;
        }
        ended = Instant::now();
        // The time of looking at the bytes is no time without a byte.
        last = ended;
    })?;
    if plan.stream_bytes.is_some_and(|wanted| total < wanted) && plan.duration_seconds.is_none() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    part.verified = data.verdict()?;
    part.own_work_seconds = data.seconds();
    (part.stall, part.bytes, part.received, part.ended) = (stall, bytes, bytes, ended);
    Ok(part)
}
