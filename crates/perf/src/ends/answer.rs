//! What the server does on a data connection.

use std::io::{self, Read, Write};
use std::time::Instant;

use super::batch::Batch;
use super::connection::Connection;
use super::data::{Data, check_message};
use super::outcome::Part;
use super::{Plan, Verify, Work, messages, stream};

/// Answers are collected up to so many bytes before they are written.
const MOST_AT_ONCE: usize = 256 * 1024;

/// One connection from its begin to its end.
pub(super) fn connection(plan: &Plan, connection: &Connection) -> io::Result<Part> {
    match plan.work {
        Work::Exchange if plan.is_large() => {
            let mut exchange = Large::new(plan);
            while exchange.answer(connection)? {}
            exchange.finish()
        }
        Work::Exchange => exchange(plan, connection),
        Work::Stream => stream::serve(plan, connection),
        Work::Messages => messages::receive(plan, connection),
        Work::Transact | Work::Hold => Ok(Part::default()),
    }
}

/// Short requests, each answered by a message of the request's first byte, as many at a time as come at a time.
fn exchange(plan: &Plan, connection: &Connection) -> io::Result<Part> {
    let (request, answer) = (plan.request_bytes as usize, plan.answer_bytes as usize);
    let mut part = Part::default();
    let mut batch = Batch::new(request);
    let mut answers: Vec<u8> = Vec::new();
    while let Some(requests) = batch.next(|room| (&mut &*connection).read(room))? {
        for one in requests.chunks_exact(request) {
            check_message(plan.verify, one, one[0])?;
            let filled = answers.len();
            answers.resize(filled + answer, one[0]);
            if answers.len() >= MOST_AT_ONCE {
                (&mut &*connection).write_all(&answers)?;
                answers.clear();
            }
            part.count((request + answer) as u64, request as u64);
        }
        (&mut &*connection).write_all(&answers)?;
        answers.clear();
    }
    part.verified = plan.verify == Verify::Pattern;
    part.ended = Instant::now();
    Ok(part)
}

/// Long requests or answers, in place.
pub(super) struct Large<'a> {
    plan: &'a Plan,
    buffer: Vec<u8>,
    taken: Data,
    made: Data,
    part: Part,
}

impl<'a> Large<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let data = || Data::new(plan.verify);
        Self { plan, buffer: Vec::new(), taken: data(), made: data(), part: Part::default() }
    }

    /// One request and its answer; false: there was no request any more.
    pub(super) fn answer(&mut self, connection: &Connection) -> io::Result<bool> {
        let chunk = self.plan.chunk_bytes as usize;
        let mut first = [0];
        if (&mut &*connection).read(&mut first)? == 0 {
            return Ok(false);
        }
        self.taken.restart();
        self.taken.take(&first);
        let taken = &mut self.taken;
        connection.receive(&mut self.buffer, chunk, Some(self.plan.request_bytes - 1), |bytes| {
            taken.take(bytes);
        })?;
        self.taken.verdict()?;
        send_message(connection, &mut self.buffer, chunk, self.plan.answer_bytes, &mut self.made)?;
        self.part.count(self.plan.request_bytes + self.plan.answer_bytes, self.plan.request_bytes);
        self.part.ended = Instant::now();
        Ok(true)
    }

    pub(super) fn finish(mut self) -> io::Result<Part> {
        self.part.verified = self.taken.verdict()?;
        self.part.own_work_seconds = self.taken.seconds() + self.made.seconds();
        Ok(self.part)
    }
}

/// Sends one long message.
pub(super) fn send_message(
    connection: &Connection,
    buffer: &mut Vec<u8>,
    chunk: usize,
    bytes: u64,
    data: &mut Data,
) -> io::Result<()> {
    data.restart();
    let mut left = bytes;
    connection.send(buffer, chunk, |space| {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(space.len());
        data.make(&mut space[..count]);
        left -= count as u64;
        count
    })?;
    Ok(())
}

/// Transactions on one thread, each on a connection of its own.
pub(super) enum Transactions<'a> {
    Short(Box<Short<'a>>),
    Large(Box<Large<'a>>),
}

/// Short requests and answers, in buffers.
pub(super) struct Short<'a> {
    plan: &'a Plan,
    request: Vec<u8>,
    answer: Vec<u8>,
    part: Part,
}

impl<'a> Transactions<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        if plan.is_large() {
            return Self::Large(Box::new(Large::new(plan)));
        }
        Self::Short(Box::new(Short {
            plan,
            request: vec![0; plan.request_bytes as usize],
            answer: vec![0; plan.answer_bytes as usize],
            part: Part::default(),
        }))
    }

    /// One transaction. The client disconnects, so that the server waits for its end.
    pub(super) fn answer(&mut self, connection: &Connection) -> io::Result<()> {
        match self {
            Self::Large(large) => {
                large.answer(connection)?;
            }
            Self::Short(short) => {
                let Short { plan, request, answer, part } = &mut **short;
                (&mut &*connection).read_exact(request)?;
                let tag = request[0];
                check_message(plan.verify, request, tag)?;
                answer.fill(tag);
                (&mut &*connection).write_all(answer)?;
                part.count(plan.request_bytes + plan.answer_bytes, plan.request_bytes);
                part.ended = Instant::now();
            }
        }
        connection.drain()
    }

    pub(super) fn finish(self) -> io::Result<Part> {
        match self {
            Self::Large(large) => large.finish(),
            Self::Short(short) => Ok(Part { verified: short.plan.verify == Verify::Pattern, ..short.part }),
        }
    }
}
