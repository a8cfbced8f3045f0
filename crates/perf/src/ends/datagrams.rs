//! Requests and answers over UDP, and the server's end of messages over UDP.
//!
//! A request bears its number in its first bytes, and the answer the same; what is lost is asked again under another
//! number, and counted.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::client::Thread;
use super::connection::Datagrams;
use super::data::check_message;
use super::outcome::Part;
use super::pace::Pace;
use super::plan::NUMBER;
use super::server::Session;
use super::{Verify, Work};

/// An answer that has not come after this is lost.
const LOST: Duration = Duration::from_millis(200);
/// The server looks so often whether the client has ended.
const LOOK: Duration = Duration::from_millis(50);
/// After the last request of an open loop, answers are waited for so long.
const LAST: Duration = Duration::from_millis(500);

/// The client's end on one socket.
pub(super) fn run(socket: &Datagrams, thread: &Thread<'_>) -> io::Result<Part> {
    match thread.rate() {
        Some(rate) => open_loop(socket, thread, rate),
        None => closed_loop(socket, thread),
    }
}

/// The server's end.
pub(super) fn serve(session: &Session<'_>, socket: &Datagrams) -> io::Result<Part> {
    let plan = session.plan;
    socket.set_read_timeout(LOOK)?;
    let mut part = Part { verified: plan.verify == Verify::Pattern, ..Part::default() };
    let (mut request, mut answer) = (vec![0; 65_536], vec![0; plan.answer_bytes as usize]);
    loop {
        let (count, remote) = match socket.recv_from(&mut request) {
            Ok(received) => received,
            Err(error) if is_timeout(&error) => {
                if session.is_over.load(Ordering::SeqCst) {
                    return Ok(part);
                }
                continue;
            }
            Err(error) if says_nothing(&error) => continue,
            Err(error) => return Err(error),
        };
        if count as u64 != plan.request_bytes {
            continue;
        }
        let request = &request[..count];
        if plan.work == Work::Messages {
            check_message(plan.verify, request, request[0])?;
            part.count(plan.request_bytes, plan.request_bytes);
        } else {
            let number = number_len(request.len(), answer.len());
            let tag = request[count - 1];
            check_message(plan.verify, &request[number..], tag)?;
            answer[number..].fill(tag);
            answer[..number].copy_from_slice(&request[..number]);
            socket.send_to(&answer, remote)?;
            part.count(plan.request_bytes + plan.answer_bytes, plan.request_bytes);
        }
        part.ended = Instant::now();
    }
}

/// How many bytes of a request are its number.
fn number_len(request: usize, answer: usize) -> usize {
    request.min(answer).min(NUMBER as usize)
}

/// Requests and answers of one socket.
struct Messages<'a> {
    socket: &'a Datagrams,
    thread: &'a Thread<'a>,
    number_len: usize,
}

impl<'a> Messages<'a> {
    fn new(socket: &'a Datagrams, thread: &'a Thread<'a>) -> Self {
        let plan = thread.plan;
        Self {
            socket,
            thread,
            number_len: number_len(plan.request_bytes as usize, plan.answer_bytes as usize),
        }
    }

    fn ask(&self, request: &mut [u8], number: u64) -> io::Result<()> {
        request[self.number_len..].fill(number as u8);
        request[..self.number_len].copy_from_slice(&number.to_le_bytes()[..self.number_len]);
        loop {
            match self.socket.send(request) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                // Of an earlier request; its answer will be missed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
                other => return other.map(drop),
            }
        }
    }

    /// The number of the next answer, as far as its bytes go; none after `patience`.
    fn hear(&self, answer: &mut [u8], patience: Duration) -> io::Result<Option<u64>> {
        let spins = self.spins();
        let end = spins.then(|| Instant::now() + patience);
        loop {
            match self.socket.recv(answer) {
                Ok(count) if count == answer.len() => break,
                Ok(_) => {}
                Err(error) if is_timeout(&error) && end.is_none_or(|end| Instant::now() >= end) => {
                    return Ok(None);
                }
                Err(error) if is_timeout(&error) => std::hint::spin_loop(),
                Err(error) if says_nothing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut bytes = [0; NUMBER as usize];
        bytes[..self.number_len].copy_from_slice(&answer[..self.number_len]);
        let number = u64::from_le_bytes(bytes);
        check_message(self.thread.plan.verify, &answer[self.number_len..], number as u8)?;
        Ok(Some(number))
    }

    /// Whether two numbers are the same as far as a datagram tells them.
    fn is_same(&self, one: u64, other: u64) -> bool {
        let bits = 8 * self.number_len as u32;
        bits >= 64 || (one ^ other) & ((1 << bits) - 1) == 0
    }

    fn spins(&self) -> bool {
        self.thread.plan.client_spins && matches!(self.socket, Datagrams::Kernel(_))
    }
}

/// The next request goes when an answer has come, or is lost.
fn closed_loop(socket: &Datagrams, thread: &Thread<'_>) -> io::Result<Part> {
    let plan = thread.plan;
    let messages = Messages::new(socket, thread);
    if messages.spins() {
        socket.set_nonblocking()?;
    } else {
        socket.set_read_timeout(LOST)?;
    }
    let mut part = Part::timed()?;
    let (mut request, mut answer) =
        (vec![0; plan.request_bytes as usize], vec![0; plan.answer_bytes as usize]);
    let depth = plan.depth;
    // What is on the way in each place: request `number` in place `number % depth`.
    let mut places: Vec<Option<(u64, Instant)>> = vec![None; depth as usize];
    let (mut begun, mut rounds, mut lost) = (0, 0_u64, 0_u64);
    let mut free: Vec<usize> = (0..depth as usize).rev().collect();
    loop {
        while let Some(place) = free.last().copied() {
            let now = Instant::now();
            if thread.is_over(begun, now) {
                break;
            }
            let number = rounds * depth + place as u64;
            rounds += 1;
            messages.ask(&mut request, number)?;
            places[place] = Some((number, now));
            free.pop();
            begun += 1;
        }
        if free.len() == places.len() {
            break;
        }
        let Some(number) = messages.hear(&mut answer, LOST)? else {
            for place in (0..places.len()).filter(|place| places[*place].is_some()).collect::<Vec<_>>() {
                places[place] = None;
                free.push(place);
                lost += 1;
            }
            continue;
        };
        let place = if depth == 1 { 0 } else { (number % depth) as usize };
        // An answer that was given up before belongs to nobody.
        if let Some((_, sent)) = places[place].filter(|(sent, _)| messages.is_same(*sent, number)) {
            let bytes = plan.request_bytes + plan.answer_bytes;
            thread.done(&mut part, sent, Instant::now(), bytes, plan.answer_bytes);
            places[place] = None;
            free.push(place);
        }
    }
    finish(part, thread, lost)
}

/// One thread asks when it is time, this one takes the answers.
fn open_loop(socket: &Datagrams, thread: &Thread<'_>, rate: f64) -> io::Result<Part> {
    const UNKNOWN: u64 = u64::MAX;
    let plan = thread.plan;
    let messages = Messages::new(socket, thread);
    let pace = Pace::new(thread.window.began, rate);
    let asked = AtomicU64::new(UNKNOWN);
    socket.set_read_timeout(LOOK)?;
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut request = vec![0; plan.request_bytes as usize];
            let mut begun = 0;
            let result = loop {
                if thread.is_over(begun, pace.due(begun)) {
                    break Ok(());
                }
                pace.wait(begun, plan.client_spins);
                if let Err(error) = messages.ask(&mut request, begun) {
                    break Err(error);
                }
                begun += 1;
            };
            asked.store(begun, Ordering::Release);
            result
        });
        let mut part = Part::timed()?;
        let mut answer = vec![0; plan.answer_bytes as usize];
        let (mut ended, mut last) = (0, Instant::now());
        while ended < asked.load(Ordering::Acquire) {
            let heard = messages.hear(&mut answer, LOOK)?;
            let now = Instant::now();
            if let Some(number) = heard {
                let due = pace.due(number);
                let end = if due >= thread.window.counts_from { now } else { due };
                thread.done(&mut part, due, end, plan.request_bytes + plan.answer_bytes, plan.answer_bytes);
                (ended, last) = (ended + 1, now);
            } else if asked.load(Ordering::Acquire) == UNKNOWN {
                last = now;
            } else if now - last > LAST {
                break;
            }
        }
        let asked = match asks.join() {
            Ok(result) => result.map(|()| asked.load(Ordering::Acquire))?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        finish(part, thread, asked - ended)
    })
}

fn finish(mut part: Part, thread: &Thread<'_>, lost: u64) -> io::Result<Part> {
    if part.operations == 0 && lost > 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no datagram was answered"));
    }
    part.verified = thread.plan.verify == Verify::Pattern;
    part.details.insert("lost_datagrams".to_owned(), lost as f64);
    Ok(part)
}

/// The kernel tells of an earlier datagram, or that this process was stopped and goes on (a call with a time limit is not
/// begun again then).
fn says_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
