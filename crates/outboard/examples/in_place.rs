//! Producing in place: a generator writes straight into the send ring, so that no byte is copied on this side.
//!
//! `cargo run --example in_place -- 10.80.0.1:9` sends a gibibyte to a server that takes anything.

use std::io;

use outboard::{Endpoint, TcpStream};

const TOTAL: usize = 1 << 30;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "10.80.0.1:9".to_owned());
    let stream = TcpStream::connect(&Endpoint::from_env()?, &address)?;
    let mut writer = stream.writer();
    let mut sent = 0;
    while sent < TOTAL {
        let space = writer.reserve((TOTAL - sent).min(1 << 20))?;
        for (index, byte) in space.iter_mut().enumerate() {
            *byte = (sent + index) as u8;
        }
        let count = space.len();
        writer.commit(count)?;
        sent += count;
    }
    println!("{sent} bytes");
    Ok(())
}
