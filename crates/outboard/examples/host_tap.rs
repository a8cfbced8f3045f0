//! An echo server with a stack of its own in the process, over a TAP device (which needs root).
//!
//! `cargo run --example host_tap -- tap0 10.80.0.2/24`

use std::io::{self, Read, Write};
use std::thread;

use outboard::device::tap::{Tap, TapOptions};
use outboard::frame::Medium;
use outboard::{Endpoint, EthernetAddress, HostConfig, TcpListener};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: host_tap TAP ADDRESS/PREFIX".into());
    };
    let device = Tap::open(&TapOptions {
        name,
        medium: Medium::Ethernet,
        mtu: None,
        offload: true,
        bring_up: true,
        kernel_address: None,
        hardware_address: EthernetAddress::locally_administered(2),
    })?;
    let address = address.parse().map_err(|_| "the address needs a prefix length")?;
    let endpoint = Endpoint::host(HostConfig { addresses: vec![address], ..HostConfig::default() }, device)?;

    for stream in TcpListener::bind(&endpoint, "0.0.0.0:7")?.incoming() {
        let mut stream = stream?;
        thread::spawn(move || -> io::Result<()> {
            let mut buffer = [0; 65536];
            loop {
                let count = stream.read(&mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                stream.write_all(&buffer[..count])?;
            }
        });
    }
    Ok(())
}
