//! A capture of traffic with every offload opens in tshark without complaint.

mod common;

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lab::lab_test;
use outboard_device::Device;
use outboard_device::capture::Capture;
use outboard_device::tap::Tap;
use wire::checksum::Sum;
use wire::frame::{ChecksumOut, Segmentation};
use wire::ip::Protocol;
use wire::{tcp, udp};

use common::{
    KERNEL, OURS, PATIENCE, headers, is_ipv4, kernel_hardware, options, receive_until, send_tcp, source_of,
    tcp_header, tcp_of, transmit,
};

/// 2026-11-21 07:00:00.123456789 UTC.
const STAMP: u64 = 1_795_244_400_123_456_789;

/// Runs tshark over a capture with every checksum verified; `None` if there is no tshark here.
fn tshark(file: &Path, arguments: &[&str]) -> Result<Option<String>> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file);
    for check in ["ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{check}:TRUE")]);
    }
    let output = match command.args(arguments).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output?,
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = complaints.lines().filter(|line| !line.contains("as user \"root\"")).collect();
    ensure!(output.status.success() && complaints.is_empty(), "tshark {}: {complaints:?}", output.status);
    Ok(Some(String::from_utf8(output.stdout)?))
}

/// Datagrams of ours, alone and as a run, and a super-segment each way.
fn traffic(tap: &mut impl Device) -> Result<()> {
    let socket = UdpSocket::bind((KERNEL, 4000))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let kernel = kernel_hardware(tap)?;
    for (payload, size) in [(&b"hello"[..], 0), (&[7; 2500], 1000)] {
        let mut bytes = headers(kernel, Protocol::UDP, udp::HEADER_LEN, payload.len());
        let len = udp::HEADER_LEN + payload.len();
        let checksum = Sum::pseudo_header_v4(OURS, KERNEL, Protocol::UDP, len as u32).fold();
        udp::Header { src_port: 5000, dst_port: 4000, len: len as u16, checksum }.emit(&mut bytes[34..]);
        let left = ChecksumOut::Partial { start: 34, offset: 6 };
        let segmentation =
            if size == 0 { Segmentation::None } else { Segmentation::Udp { segment_size: size } };
        transmit(tap, &bytes, [payload, &[]], left, segmentation)?;
    }
    let mut got = [0; 2000];
    socket.recv_from(&mut got)?;
    socket.send_to(b"answer", (OURS, 5000))?;
    receive_until(tap, |frame| is_ipv4(frame, Protocol::UDP))?;

    let sender = std::thread::spawn(|| -> Result<()> {
        let mut stream = TcpStream::connect((OURS, 5001))?;
        stream.write_all(&[7; 100_000])?;
        Ok(())
    });
    let frame = receive_until(tap, |frame| is_ipv4(frame, Protocol::TCP))?;
    let (syn, _) = tcp_of(&frame)?;
    let ack = syn.seq.0.wrapping_add(1);
    let answer = tcp_header(syn.src_port, 1000, ack, tcp::Flags::SYN | tcp::Flags::ACK, Some(1460));
    send_tcp(tap, kernel, &answer, &[], 0)?;
    receive_until(tap, |frame| frame.segment_size > 0)?;
    let header = tcp_header(syn.src_port, 1001, ack, tcp::Flags::ACK, None);
    send_tcp(tap, source_of(&frame), &header, &[3; 5001], 1460)?;
    let reset = tcp_header(syn.src_port, 6002, ack, tcp::Flags::RST, None);
    send_tcp(tap, kernel, &reset, &[], 0)?;
    // The reset may meet the writer in the middle of its write.
    let _ = sender.join();
    Ok(())
}

lab_test! {
    fn offloaded_traffic_is_captured_with_right_checksums(lab) {
        let path = lab.file("capture.pcapng");
        lab.namespace("tap")?.within(|| -> Result<()> {
            let tap = Tap::open(&options(1500, true))?;
            let mut capture = Capture::new(tap, std::fs::File::create(&path)?, "ob0", || STAMP)?;
            traffic(&mut capture)?;
            ensure!(capture.error().is_none(), "{:?}", capture.error());
            let frames = capture.stats().frames_in + capture.stats().frames_out;
            drop(capture);
            let fields = [
                "frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction", "ip.checksum.status",
                "tcp.checksum.status", "udp.checksum.status", "frame.len", "frame.cap_len",
            ];
            let arguments: Vec<_> = ["-T", "fields"].into_iter()
                .chain(fields.iter().flat_map(|field| ["-e", *field]))
                .collect();
            let Some(text) = tshark(&path, &arguments)? else {
                eprintln!("no tshark here: the capture was not read back");
                return Ok(());
            };
            assert_eq!(text.lines().count() as u64, frames);
            let mut sizes = [0; 2];
            for line in text.lines() {
                let columns: Vec<_> = line.split('\t').collect();
                let [time, name, direction, ip, tcp, udp, length, kept] = columns[..] else {
                    anyhow::bail!("{line}");
                };
                assert_eq!((time, name), ("1795244400.123456789", "ob0"));
                // 0: bad, 1: good, 2: not verified; nothing: no such header.
                ensure!([ip, tcp, udp].iter().all(|status| ["1", ""].contains(status)), "{line}");
                let direction: usize = match direction {
                    "0x00000001" | "1" => 0,
                    "0x00000002" | "2" => 1,
                    other => anyhow::bail!("direction {other}"),
                };
                assert_eq!(length, kept);
                sizes[direction] = sizes[direction].max(length.parse::<u32>()?);
            }
            ensure!(sizes[0] > 1514 && sizes[1] == 14 + 40 + 5001, "super-segments stand there whole: {sizes:?}");
            Ok(())
        })?
    }

    fn a_snap_length_keeps_the_beginning_of_every_frame(lab) {
        let path = lab.file("short.pcapng");
        lab.namespace("tap")?.within(|| -> Result<()> {
            let tap = Tap::open(&options(1500, true))?;
            let file = std::fs::File::create(&path)?;
            let mut capture = Capture::with_snap_length(tap, file, "ob0", || STAMP, Some(60))?;
            traffic(&mut capture)?;
            capture.flush()?;
            let Some(text) = tshark(&path, &["-T", "fields", "-e", "frame.len", "-e", "frame.cap_len"])? else {
                return Ok(());
            };
            for line in text.lines() {
                let (length, kept) = line.split_once('\t').context("two columns")?;
                assert_eq!(kept.parse::<u32>()?, length.parse::<u32>()?.min(60));
            }
            Ok(())
        })?
    }
}
