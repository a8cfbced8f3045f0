//! Requests at a rate on one TCP connection: one thread asks when it is time, another takes the answers. The time of a
//! request counts from when it was due, so a stall shows in every request that it held up.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Verify;
use super::batch::Batch;
use super::client::Thread;
use super::connection::Connection;
use super::data::check_message;
use super::outcome::Part;
use super::pace::Pace;

/// The number of requests is not known yet.
const UNKNOWN: u64 = u64::MAX;

pub(super) fn run(connection: &Connection, thread: &Thread<'_>, rate: f64) -> io::Result<Part> {
    let pace = Pace::new(thread.window.began, rate);
    let asked = AtomicU64::new(UNKNOWN);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let result = ask(connection, thread, &pace);
            asked.store(*result.as_ref().unwrap_or(&0), Ordering::Release);
            // The server closes when it has answered all, which ends the other thread's reading.
            result.and_then(|_| connection.finish())
        });
        let part = take(connection, thread, &pace, &asked);
        match asks.join() {
            Ok(result) => part.and_then(|part| result.map(|()| part)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Asks until the load is over; how often that was.
fn ask(mut connection: &Connection, thread: &Thread<'_>, pace: &Pace) -> io::Result<u64> {
    let mut request = vec![0; thread.plan.request_bytes as usize];
    let mut begun = 0;
    while !thread.is_over(begun, pace.due(begun)) {
        pace.wait(begun, thread.plan.client_spins);
        request.fill(begun as u8);
        connection.write_all(&request)?;
        begun += 1;
    }
    Ok(begun)
}

fn take(
    mut connection: &Connection,
    thread: &Thread<'_>,
    pace: &Pace,
    asked: &AtomicU64,
) -> io::Result<Part> {
    let plan = thread.plan;
    let mut part = Part::timed()?;
    let mut batch = Batch::new(plan.answer_bytes as usize);
    let mut ended = 0;
    while let Some(answers) = batch.next(|room| connection.read(room))? {
        let now = Instant::now();
        for one in answers.chunks_exact(plan.answer_bytes as usize) {
            check_message(plan.verify, one, ended as u8)?;
            let due = pace.due(ended);
            // Which operations count is a matter of when they were due.
            let counts = due >= thread.window.counts_from;
            let end = if counts { now } else { due };
            thread.done(&mut part, due, end, plan.request_bytes + plan.answer_bytes, plan.answer_bytes);
            ended += 1;
        }
    }
    if ended != asked.load(Ordering::Acquire) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "not every request was answered"));
    }
    part.verified = plan.verify == Verify::Pattern;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::super::outcome::Window;
    use super::super::tally::Count;
    use super::super::{Plan, Work};
    use super::*;

    /// Answers every byte with itself, but stalls once.
    fn stalling_echo(mut stream: TcpStream, after: usize, stall: Duration) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut byte = [0];
        for number in 0.. {
            if stream.read(&mut byte)? == 0 {
                break;
            }
            if number == after {
                std::thread::sleep(stall);
            }
            stream.write_all(&byte)?;
        }
        Ok(())
    }

    #[test]
    fn a_stall_shows_in_every_request_that_it_held_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let echo = std::thread::spawn(move || stalling_echo(server, 10, Duration::from_millis(300)));
        let plan = Plan { count: Some(200), rate_per_second: Some(1000.0), ..Plan::new(Work::Exchange) };
        let thread = Thread { plan: &plan, window: Window::begin(&plan), count: &Count::default() };
        let part = run(&Connection::Kernel(client), &thread, 1000.0).unwrap();
        echo.join().unwrap().unwrap();
        assert_eq!(part.operations, 200);
        // Request 110 was due after 110 ms and answered after 310 ms at the earliest. A closed loop would have seen one
        // slow request in two hundred.
        let histogram = part.histogram.unwrap();
        let median = Duration::from_nanos(histogram.value_at_quantile(0.5));
        assert!(median >= Duration::from_millis(150), "{median:?}");
        assert!(histogram.max() >= 300_000_000);
    }
}
