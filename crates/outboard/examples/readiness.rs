//! One thread, many connections: non-blocking sockets and `poll`.
//!
//! `cargo run --example readiness` serves echo on port 7 of all addresses of the FEP.

use std::io::{self, Read, Write};

use outboard::raw::Interest;
use outboard::{Endpoint, PollEntry, TcpListener, TcpStream, poll};

fn main() -> io::Result<()> {
    let listener = TcpListener::bind(&Endpoint::from_env()?, "0.0.0.0:7")?;
    listener.set_nonblocking(true)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        let mut entries = vec![PollEntry::new(listener.raw(), Interest::READABLE)];
        entries.extend(streams.iter().map(|stream| PollEntry::new(stream.raw(), Interest::READABLE)));
        poll(&mut entries, None)?;
        let ready: Vec<bool> = entries.iter().map(|entry| entry.ready.satisfies(entry.interest)).collect();
        drop(entries);

        let mut index = 0;
        streams.retain_mut(|stream| {
            index += 1;
            !ready[index] || echo(stream).unwrap_or(false)
        });
        if ready[0] {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true)?;
                streams.push(stream);
            }
        }
    }
}

/// Sends back what has come; false at the end of the connection.
fn echo(stream: &mut TcpStream) -> io::Result<bool> {
    let mut buffer = [0; 65536];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(count) => stream.write_all(&buffer[..count]).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}
