//! Two hosts in one process, their devices two ends of a wire in memory that carries raw IP packets. Needs no
//! privilege: it is how a tunnel or a sandbox gives its guests a network.

use std::io::{self, Read, Write};
use std::thread;

use outboard::device::memory::{self, MemoryDevice};
use outboard::frame::{Capabilities, Medium};
use outboard::{Endpoint, EthernetAddress, HostConfig, TcpListener, TcpStream};

/// A wire for IP packets of up to 9000 bytes, checksums computed in software.
const WIRE: Capabilities = Capabilities {
    medium: Medium::Ip,
    mtu: 9000,
    checksum_tx: false,
    checksum_rx: false,
    max_segmentation: 0,
    hardware_address: EthernetAddress([0; 6]),
};

fn host(address: &str, device: MemoryDevice) -> io::Result<Endpoint> {
    let address = address.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    Endpoint::host(HostConfig { addresses: vec![address], ..HostConfig::default() }, device)
}

fn main() -> io::Result<()> {
    let (here, there) = memory::pair(WIRE, WIRE)?;
    let server = host("192.0.2.1/24", here)?;
    let client = host("192.0.2.2/24", there)?;

    let listener = TcpListener::bind(&server, "192.0.2.1:80")?;
    let serving = thread::spawn(move || -> io::Result<()> {
        let (mut stream, peer) = listener.accept()?;
        writeln!(stream, "hello, {peer}")
    });
    let mut text = String::new();
    TcpStream::connect(&client, "192.0.2.1:80")?.read_to_string(&mut text)?;
    print!("{text}");
    serving.join().map_err(|_| io::Error::other("the server failed"))?
}
