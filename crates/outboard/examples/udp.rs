//! UDP: asks a time server (RFC 868) on the network of the FEP.
//!
//! `cargo run --example udp -- 10.80.0.1:37`

use std::io;
use std::time::Duration;

use outboard::{Endpoint, UdpSocket};

fn main() -> io::Result<()> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "10.80.0.1:37".to_owned());
    let socket = UdpSocket::bind(&Endpoint::from_env()?, "0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.send_to(b"", &server)?;
    let mut answer = [0; 4];
    let (_, from) = socket.recv_from(&mut answer)?;
    println!("{from}: {} seconds since 1900", u32::from_be_bytes(answer));
    Ok(())
}
