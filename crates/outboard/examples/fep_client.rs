//! A client on a running front-end processor: takes a page and reads it in place, where the FEP put it.
//!
//! `cargo run --example fep_client -- 10.80.0.1:80`

use std::io::{self, BufRead, Write};

use outboard::{Endpoint, TcpStream};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "10.80.0.1:80".to_owned());
    // The FEP that OUTBOARD_SOCKET names, or the default one. `Endpoint::fep(path)` takes a path instead.
    let endpoint = Endpoint::from_env()?;
    let stream = TcpStream::connect(&endpoint, &address)?;
    write!(&stream, "GET / HTTP/1.0\r\nHost: {address}\r\n\r\n")?;

    let mut reader = stream.reader();
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let count = bytes.len();
        io::stdout().write_all(bytes)?;
        reader.consume(count);
    }
}
