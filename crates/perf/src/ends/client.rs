//! The peer's end: always on the kernel.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::connection::Connection;
use super::server::{print, receive, send};
use super::{Operation, Outcome, Request};
use crate::results::Latency;

/// What the peer is to do.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Where the server is.
    pub address: SocketAddr,
    /// What to ask for.
    pub request: Request,
    /// How many times, one connection after the other; for `hold`, how many connections at a time.
    pub count: u64,
    /// How long to go on echoing.
    pub duration: Duration,
    /// Whether to look for an answer without sleeping.
    pub spin: bool,
}

/// Asks, does the peer's part, prints an [`Outcome`].
pub fn client(options: &ClientOptions) -> io::Result<()> {
    match options.request.operation {
        Operation::Get | Operation::Put => print(&transfer(options)?),
        Operation::Echo => print(&round_trips(options)?),
        Operation::Hold => hold(options)?,
    }
    Ok(())
}

fn connect(options: &ClientOptions) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(options.address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&options.request.encode())?;
    Ok(stream)
}

fn transfer(options: &ClientOptions) -> io::Result<Outcome> {
    let began = Instant::now();
    let mut sum = Outcome { verified: true, ..Outcome::default() };
    for _ in 0..options.count {
        let mut connection = Connection::kernel(connect(options)?);
        let one = if options.request.operation == Operation::Get {
            receive(&mut connection, options.request)?
        } else {
            let mut outcome = send(&mut connection, options.request)?;
            // The server's word that it has everything, and that it is right if it was to check.
            let mut answer = [0];
            connection.read_exact(&mut answer)?;
            outcome.verified = answer[0] != 0;
            outcome
        };
        sum.operations += 1;
        sum.bytes += one.bytes;
        sum.own_work_seconds += one.own_work_seconds;
        sum.verified &= one.verified;
        sum.longest_stall_seconds = sum.longest_stall_seconds.max(one.longest_stall_seconds);
    }
    sum.elapsed_seconds = began.elapsed().as_secs_f64();
    Ok(sum)
}

fn round_trips(options: &ClientOptions) -> io::Result<Outcome> {
    let mut stream = connect(options)?;
    let size = usize::try_from(options.request.bytes.max(1)).unwrap_or(1);
    let mut message = vec![0; size];
    // From 1 ns to a minute with three digits.
    let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| io::Error::other(error.to_string()))?;
    if options.spin {
        stream.set_nonblocking(true)?;
    }
    let mut verified = true;
    let began = Instant::now();
    let mut before = began;
    let mut count = 0_u64;
    while before - began < options.duration {
        message.fill(count as u8);
        write_all(&mut stream, &message)?;
        message.fill(!(count as u8));
        read_exact(&mut stream, &mut message)?;
        verified &= message.iter().all(|byte| *byte == count as u8);
        let now = Instant::now();
        histogram.saturating_record((now - before).as_nanos() as u64);
        before = now;
        count += 1;
    }
    Ok(Outcome {
        operations: count,
        bytes: count * 2 * size as u64,
        elapsed_seconds: (before - began).as_secs_f64(),
        verified,
        latency_ns: Some(latency(&histogram)),
        ..Outcome::default()
    })
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    Latency {
        min: histogram.min(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        p99_9: histogram.value_at_quantile(0.999),
        p99_99: histogram.value_at_quantile(0.9999),
        max: histogram.max(),
    }
}

/// As `Write::write_all`, and on a non-blocking socket it tries again at once.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As `Read::read_exact`, and on a non-blocking socket it tries again at once.
fn read_exact(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens connections that say nothing, prints an outcome, and keeps them until the process is killed.
fn hold(options: &ClientOptions) -> io::Result<()> {
    let began = Instant::now();
    let connections = (0..options.count).map(|_| connect(options)).collect::<io::Result<Vec<_>>>()?;
    print(&Outcome {
        operations: connections.len() as u64,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        ..Outcome::default()
    });
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
