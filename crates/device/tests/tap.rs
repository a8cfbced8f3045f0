//! The TAP driver against the kernel at its other end.

mod common;

use std::cell::Cell;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use anyhow::{Context, Result, ensure};
use lab::{Namespace, lab_test};
use outboard_device::tap::{Tap, TapError};
use outboard_device::{Device, Wanted};
use wire::checksum::Sum;
use wire::frame::{ChecksumIn, ChecksumOut, Medium, Segmentation};
use wire::ip::Protocol;
use wire::{tcp, udp};

use common::{
    KERNEL, OURS, PATIENCE, headers, is_ipv4, kernel_hardware, options, receive_until, send_tcp, source_of,
    tcp_header, tcp_of, transmit,
};

/// A datagram from the kernel comes up whole, and one of ours, its checksum left to the device, arrives.
fn udp_both_ways(namespace: &Namespace, mtu: u16, offload: bool) -> Result<()> {
    namespace.within(|| -> Result<()> {
        let mut tap = Tap::open(&options(mtu, offload))?;
        assert_eq!(tap.capabilities().mtu, mtu);
        let socket = UdpSocket::bind((KERNEL, 4000))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let payload = vec![0xa5; usize::from(mtu) - 28];
        socket.send_to(&payload, (OURS, 5000))?;
        let frame = receive_until(&mut tap, |frame| is_ipv4(frame, Protocol::UDP))?;
        assert_eq!(&frame.bytes[42..], payload, "MTU {mtu}");
        if !offload {
            assert_eq!(frame.checksum, ChecksumIn::Unknown, "without offload the kernel sums");
        }

        let answer = vec![0x5a; payload.len()];
        let mut bytes = headers(source_of(&frame), Protocol::UDP, udp::HEADER_LEN, answer.len());
        let pseudo_header =
            Sum::pseudo_header_v4(OURS, KERNEL, Protocol::UDP, (udp::HEADER_LEN + answer.len()) as u32);
        let checksum = if offload { pseudo_header.fold() } else { 0 };
        udp::Header {
            src_port: 5000,
            dst_port: 4000,
            len: (udp::HEADER_LEN + answer.len()) as u16,
            checksum,
        }
        .emit(&mut bytes[34..]);
        let left =
            if offload { ChecksumOut::Partial { start: 34, offset: 6 } } else { ChecksumOut::Complete };
        let (first, second) = answer.split_at(answer.len() / 3);
        transmit(&mut tap, &bytes, [first, second], left, Segmentation::None)?;
        let mut got = vec![0; 70_000];
        let (length, from) = socket.recv_from(&mut got)?;
        assert_eq!((&got[..length], from), (&answer[..], SocketAddr::new(IpAddr::V4(OURS), 5000)));
        Ok(())
    })?
}

/// Whether a datagram to all comes: behind it one follows to us, which does.
fn broadcast_comes(tap: &mut Tap, socket: &UdpSocket) -> Result<bool> {
    socket.send_to(b"to all", (Ipv4Addr::BROADCAST, 5000))?;
    socket.send_to(b"to us", (OURS, 5000))?;
    let came = Cell::new(false);
    receive_until(tap, |frame| {
        came.set(came.get() || frame.bytes.ends_with(b"to all"));
        frame.bytes.ends_with(b"to us")
    })?;
    Ok(came.get())
}

/// The noise filter drops what is not wanted, and only while it is there.
fn noise_is_dropped(namespace: &Namespace) -> Result<()> {
    namespace.within(|| -> Result<()> {
        let mut tap = Tap::open(&options(1500, true))?;
        let supervisor = tap.try_clone_descriptor()?;
        let socket = UdpSocket::bind((KERNEL, 4000))?;
        socket.set_broadcast(true)?;
        let mut filter = tap.noise_filter().context("a TAP interface has a filter")?;
        assert!(broadcast_comes(&mut tap, &socket)?, "without a filter");
        let neighbours = Some(vec![(KERNEL, None)]);
        let mut wanted = Wanted { addresses: vec![OURS], neighbours, broadcast_ports: Some(vec![68]) };
        filter.want(&wanted)?;
        assert!(!broadcast_comes(&mut tap, &socket)?, "to a port that nobody has");
        wanted.broadcast_ports = Some(vec![5000]);
        filter.want(&wanted)?;
        assert!(broadcast_comes(&mut tap, &socket)?, "to a port that somebody has");
        wanted.broadcast_ports = Some(Vec::new());
        filter.want(&wanted)?;
        // The worker dies without a word, and another one takes over.
        std::mem::forget(tap);
        let mut tap = Tap::from_descriptor(supervisor, &options(1500, true))?;
        assert!(broadcast_comes(&mut tap, &socket)?, "with another worker");
        Ok(())
    })?
}

lab_test! {
    fn noise_that_nobody_wants_is_dropped_by_the_kernel(lab) {
        noise_is_dropped(&lab.namespace("tap")?)
    }

    fn datagrams_pass_both_ways_at_every_mtu(lab) {
        for mtu in [576, 1500, 9000, 65_521] {
            for offload in [true, false] {
                udp_both_ways(&lab.namespace("tap")?, mtu, offload)?;
            }
        }
        Ok(())
    }

    fn an_impossible_mtu_is_refused_with_what_is_possible(lab) {
        lab.namespace("tap")?.within(|| -> Result<()> {
            let error = Tap::open(&options(65_535, true)).expect_err("a TAP's MTU ends at 65,521");
            ensure!(matches!(error, TapError::MtuRange { .. }), "{error}");
            assert_eq!(
                error.to_string(),
                "MTU 65535 is not possible for 'ob0': 576 to 65521 are, for a TAP interface"
            );
            let error = Tap::open(&options(575, true)).expect_err("less than IPv4 asks for");
            ensure!(matches!(error, TapError::MtuRange { .. }), "{error}");
            let mut tun = options(65_535, true);
            tun.medium = Medium::Ip;
            assert_eq!(Tap::open(&tun)?.capabilities().mtu, 65_535);
            Ok(())
        })?
    }

    fn the_kernel_hands_over_super_segments_whole(lab) {
        lab.namespace("tap")?.within(|| -> Result<()> {
            let mut tap = Tap::open(&options(1500, true))?;
            let sender = std::thread::spawn(|| -> Result<()> {
                let mut stream = TcpStream::connect((OURS, 5001))?;
                stream.write_all(&[7; 100_000])?;
                Ok(())
            });
            let frame = receive_until(&mut tap, |frame| is_ipv4(frame, Protocol::TCP))?;
            let (syn, _) = tcp_of(&frame)?;
            assert_eq!(frame.checksum, ChecksumIn::Partial, "nobody summed what never saw a wire");
            let answer = tcp_header(
                syn.src_port, 1000, syn.seq.0.wrapping_add(1), tcp::Flags::SYN | tcp::Flags::ACK, Some(1460),
            );
            send_tcp(&mut tap, source_of(&frame), &answer, &[], 0)?;
            let big = receive_until(&mut tap, |frame| frame.segment_size > 0)?;
            assert_eq!(big.segment_size, 1460);
            assert!(big.bytes.len() > 1514, "{} bytes", big.bytes.len());
            let (_, length) = tcp_of(&big)?;
            assert_eq!(length, big.bytes.len() - 54);
            let reset = tcp_header(syn.src_port, 1001, 0, tcp::Flags::RST, None);
            send_tcp(&mut tap, source_of(&frame), &reset, &[], 0)?;
            // The reset may meet the writer in the middle of its write.
            let _ = sender.join();
            Ok(())
        })?
    }

    fn the_kernel_takes_super_segments_with_and_without_offload(lab) {
        for offload in [true, false] {
            lab.namespace("tap")?.within(|| -> Result<()> {
                let mut tap = Tap::open(&options(1500, offload))?;
                let listener = TcpListener::bind((KERNEL, 4001))?;
                let reader = std::thread::spawn(move || -> Result<Vec<u8>> {
                    let (mut stream, _) = listener.accept()?;
                    let mut got = Vec::new();
                    std::io::Read::read_to_end(&mut stream, &mut got)?;
                    Ok(got)
                });
                let kernel = kernel_hardware(&mut tap)?;
                send_tcp(&mut tap, kernel, &tcp_header(4001, 99, 0, tcp::Flags::SYN, Some(1460)), &[], 0)?;
                let frame = receive_until(&mut tap, |frame| is_ipv4(frame, Protocol::TCP))?;
                let (synack, _) = tcp_of(&frame)?;
                let ack = synack.seq.0.wrapping_add(1);
                let data: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
                send_tcp(&mut tap, kernel, &tcp_header(4001, 100, ack, tcp::Flags::ACK, None), &[], 0)?;
                let header = tcp_header(4001, 100, ack, tcp::Flags::ACK | tcp::Flags::FIN | tcp::Flags::PSH, None);
                send_tcp(&mut tap, kernel, &header, &data, 1448)?;
                let got = match reader.join() {
                    Ok(got) => got?,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                assert!(got == data, "offload {offload}: {} of {} bytes", got.len(), data.len());
                Ok(())
            })??;
        }
        Ok(())
    }

    fn offload_flags_are_gone_after_the_device_is_closed(lab) {
        let namespace = lab.namespace("tap")?;
        namespace.ip("tuntap add dev ob0 mode tap vnet_hdr")?;
        let features = || -> Result<String> {
            Ok(String::from_utf8(namespace.run("ethtool", &["-k", "ob0"])?.stdout)?)
        };
        let tap = namespace.within(|| Tap::open(&options(1500, true)))??;
        ensure!(features()?.contains("tcp-segmentation-offload: on"), "{}", features()?);
        drop(tap);
        ensure!(features()?.contains("tcp-segmentation-offload: off"), "{}", features()?);
        Ok(())
    }
}
