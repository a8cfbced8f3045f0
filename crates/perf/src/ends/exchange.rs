//! Requests and answers on one TCP connection, the client's end: so many on the way, or at a rate (`open_loop`).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Instant;

use super::answer::send_message;
use super::batch::Batch;
use super::client::Thread;
use super::connection::Connection;
use super::data::{Data, check_message};
use super::outcome::Part;
use super::{Net, Verify, open_loop};

/// A connection's requests until the load is over.
pub(super) fn run(connection: &Connection, thread: &Thread<'_>) -> io::Result<Part> {
    match thread.rate() {
        Some(rate) => open_loop::run(connection, thread, rate),
        None if thread.plan.is_large() => large(connection, thread),
        None => closed_loop(connection, thread),
    }
}

/// Short messages: the next request goes when an answer has come.
fn closed_loop(connection: &Connection, thread: &Thread<'_>) -> io::Result<Part> {
    let plan = thread.plan;
    let (request, answer) = (plan.request_bytes as usize, plan.answer_bytes as usize);
    if plan.client_spins && matches!(connection, Connection::Kernel(_)) {
        connection.set_nonblocking()?;
    }
    let mut part = Part::timed()?;
    let mut batch = Batch::new(answer);
    let mut requests = Vec::new();
    let mut on_the_way = VecDeque::new();
    let (mut begun, mut ended) = (0_u64, 0_u64);
    let mut now = Instant::now();
    let mut free = plan.depth;
    loop {
        requests.clear();
        while free > 0 && !thread.is_over(begun, now) {
            requests.resize(requests.len() + request, begun as u8);
            on_the_way.push_back(now);
            begun += 1;
            free -= 1;
        }
        write_all(connection, &requests)?;
        if on_the_way.is_empty() {
            part.verified = plan.verify == Verify::Pattern;
            return connection.finish().map(|()| part);
        }
        let answers = batch.next(|room| read(connection, room))?.ok_or(io::ErrorKind::UnexpectedEof)?;
        now = Instant::now();
        for one in answers.chunks_exact(answer) {
            check_message(plan.verify, one, ended as u8)?;
            let sent = on_the_way.pop_front().ok_or(io::ErrorKind::InvalidData)?;
            thread.done(&mut part, sent, now, plan.request_bytes + plan.answer_bytes, plan.answer_bytes);
            ended += 1;
            free += 1;
        }
    }
}

/// Long messages, made and read in place, one at a time.
fn large(connection: &Connection, thread: &Thread<'_>) -> io::Result<Part> {
    let mut large = Large::new(thread);
    let mut begun = 0;
    let mut now = Instant::now();
    while !thread.is_over(begun, now) {
        now = large.exchange(connection, now)?;
        begun += 1;
    }
    connection.finish()?;
    large.finish()
}

/// The client's end of long messages.
pub(super) struct Large<'a> {
    thread: &'a Thread<'a>,
    buffer: Vec<u8>,
    made: Data,
    taken: Data,
    part: Part,
}

impl<'a> Large<'a> {
    pub(super) fn new(thread: &'a Thread<'a>) -> Self {
        let data = || Data::new(thread.plan.verify);
        Self { thread, buffer: Vec::new(), made: data(), taken: data(), part: Part::default() }
    }

    /// One request and its answer, which count from `began`; when it was done.
    pub(super) fn exchange(&mut self, connection: &Connection, began: Instant) -> io::Result<Instant> {
        let plan = self.thread.plan;
        let chunk = plan.chunk_bytes as usize;
        send_message(connection, &mut self.buffer, chunk, plan.request_bytes, &mut self.made)?;
        self.taken.restart();
        let (taken, stall, count) = (&mut self.taken, &mut self.part.stall, self.thread.count);
        let mut last = Instant::now();
        connection.receive(&mut self.buffer, chunk, Some(plan.answer_bytes), |bytes| {
            let now = Instant::now();
            *stall = (*stall).max(now - last);
            taken.take(bytes);
            count.add(0, bytes.len() as u64);
            last = now;
        })?;
        self.taken.verdict()?;
        let now = Instant::now();
        self.thread.count.add(1, plan.request_bytes);
        if now >= self.thread.window.counts_from {
            if self.part.histogram.is_none() {
                self.part.histogram = Part::timed()?.histogram;
            }
            self.part.count(plan.request_bytes + plan.answer_bytes, plan.answer_bytes);
            self.part.record(now.saturating_duration_since(began));
            self.part.ended = now;
        }
        Ok(now)
    }

    pub(super) fn finish(mut self) -> io::Result<Part> {
        self.part.verified = self.taken.verdict()?;
        self.part.own_work_seconds = self.taken.seconds() + self.made.seconds();
        Ok(self.part)
    }
}

/// As `Write::write_all`, and on a non-blocking socket it tries again at once.
fn write_all(mut connection: &Connection, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match connection.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As `Read::read`, and on a non-blocking socket it tries again at once.
fn read(mut connection: &Connection, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match connection.read(room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            other => return other,
        }
    }
}

/// One transaction of long messages on a connection of its own.
pub(super) fn transact_large(
    net: &Net,
    address: std::net::SocketAddr,
    large: &mut Large<'_>,
    began: Instant,
) -> io::Result<Instant> {
    let connection = net.connect_as(address, large.thread.plan)?;
    connection.set_nodelay()?;
    large.exchange(&connection, began)
}
