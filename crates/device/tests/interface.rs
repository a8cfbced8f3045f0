//! The TAP driver and its interface: up and down, TUN, inherited descriptors, persistence, echo, runs of datagrams.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use lab::lab_test;
use outboard_device::tap::{Tap, TapOptions};
use outboard_device::{Device, DeviceStats};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};
use wire::checksum::Sum;
use wire::ethernet::HEADER_LEN;
use wire::frame::{ChecksumIn, ChecksumOut, Medium, RxFrame, Segmentation, TxFrame};
use wire::ip::Protocol;
use wire::view::{Transport, View};
use wire::{icmpv4, ipv4, udp};

use common::{
    KERNEL, OURS, PATIENCE, headers, is_ipv4, kernel_hardware, options, receive_until, source_of, transmit,
};

fn features(namespace: &lab::Namespace) -> Result<String> {
    Ok(String::from_utf8(namespace.run("ethtool", &["-k", "ob0"])?.stdout)?)
}

/// A datagram of ours in one super-segment of `size` bytes a piece.
fn send_datagrams(tap: &mut impl Device, payload: &[u8], size: u16) -> Result<()> {
    let kernel = kernel_hardware(tap)?;
    let mut bytes = headers(kernel, Protocol::UDP, udp::HEADER_LEN, payload.len());
    let len = udp::HEADER_LEN + payload.len();
    let pseudo_header = Sum::pseudo_header_v4(OURS, KERNEL, Protocol::UDP, len as u32);
    udp::Header { src_port: 5000, dst_port: 4000, len: len as u16, checksum: pseudo_header.fold() }
        .emit(&mut bytes[34..]);
    let segmentation = Segmentation::Udp { segment_size: size };
    transmit(tap, &bytes, [payload, &[]], ChecksumOut::Partial { start: 34, offset: 6 }, segmentation)
}

/// Answers the echo request in `frame` as a host would, in place.
fn echo_reply(frame: &[u8]) -> Option<Vec<u8>> {
    let view = View::parse(frame, Medium::Ethernet).ok()?;
    let Transport::Icmpv4(icmpv4::Message::EchoRequest { identifier, sequence }) = view.transport else {
        return None;
    };
    let mut reply = headers(view.ethernet?.source, Protocol::ICMP, icmpv4::HEADER_LEN, view.payload.len());
    let start = HEADER_LEN + ipv4::HEADER_LEN;
    icmpv4::Message::EchoReply { identifier, sequence }.emit(&mut reply[start..], view.payload);
    reply.extend_from_slice(view.payload);
    Some(reply)
}

lab_test! {
    fn an_interface_that_is_down_refuses_and_goes_on_when_up(lab) {
        let namespace = lab.namespace("tap")?;
        let mut tap = namespace.within(|| Tap::open(&options(1500, true)))??;
        namespace.ip("link set ob0 down")?;
        let frame = TxFrame::plain(&[0xff; 60], [&[], &[]]);
        let error = tap.transmit(&frame).expect_err("nothing passes an interface that is down");
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
        assert_eq!(tap.stats().errors_out, 1);
        // What was on its way may still arrive, but nothing fails.
        while tap.receive(64, &mut |_| ())? > 0 {}
        namespace.ip("link set ob0 up")?;
        tap.transmit(&frame)?;
        assert_eq!(tap.stats().frames_out, 1);
        namespace.ip("link delete ob0")?;
        tap.receive(64, &mut |_| ()).expect_err("the interface is gone");
        Ok(())
    }

    fn the_kernel_is_pinged_and_pings(lab) {
        lab.namespace("tap")?.within(|| -> Result<()> {
            let mut tap = Tap::open(&options(1500, true))?;
            let socket = rustix::net::socket_with(
                AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP),
            )?;
            rustix::net::sockopt::set_socket_timeout(
                &socket, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE),
            )?;
            let data = [0x61; 56];
            let mut request = vec![0; icmpv4::HEADER_LEN];
            icmpv4::Message::EchoRequest { identifier: 9, sequence: 1 }.emit(&mut request, &data);
            request.extend_from_slice(&data);
            let to = std::net::SocketAddrV4::new(OURS, 0);
            rustix::net::sendto(&socket, &request, rustix::net::SendFlags::empty(), &to)?;
            let asked = receive_until(&mut tap, |frame| echo_reply(&frame.bytes).is_some())?;
            let reply = echo_reply(&asked.bytes).context("it was one a moment ago")?;
            transmit(&mut tap, &reply, [&[], &[]], ChecksumOut::Complete, Segmentation::None)?;
            let mut got = [0; 1500];
            let (length, _) = rustix::net::recv(&socket, &mut got, RecvFlags::empty())?;
            let packet = ipv4::Packet::parse(&got[..length])?;
            let expected = icmpv4::Message::EchoReply { identifier: 9, sequence: 1 };
            assert_eq!(icmpv4::Message::parse(packet.payload)?, (expected, &data[..]));

            // And the other way round: the kernel answers ours.
            let kernel = source_of(&asked);
            let mut ours = headers(kernel, Protocol::ICMP, icmpv4::HEADER_LEN, 4);
            icmpv4::Message::EchoRequest { identifier: 3, sequence: 2 }.emit(&mut ours[34..], b"ping");
            transmit(&mut tap, &ours, [b"pi", b"ng"], ChecksumOut::Complete, Segmentation::None)?;
            let answer = receive_until(&mut tap, |frame| {
                let view = View::parse(&frame.bytes, Medium::Ethernet);
                let expected = Transport::Icmpv4(icmpv4::Message::EchoReply { identifier: 3, sequence: 2 });
                view.is_ok_and(|view| view.transport == expected)
            })?;
            assert_eq!(View::parse(&answer.bytes, Medium::Ethernet)?.payload, b"ping");
            let DeviceStats { frames_in, bytes_in, frames_out, bytes_out, .. } = tap.stats();
            ensure!(frames_in >= 2 && bytes_in >= 2 * 46 && frames_out >= 2 && bytes_out >= 2 * 46);
            ensure!(tap.stats().system_calls >= frames_in + frames_out);
            Ok(())
        })?
    }

    fn a_tun_interface_carries_bare_packets(lab) {
        lab.namespace("tun")?.within(|| -> Result<()> {
            let mut tun = Tap::open(&TapOptions { medium: Medium::Ip, ..options(65_535, true) })?;
            assert_eq!(tun.capabilities().medium, Medium::Ip);
            let socket = UdpSocket::bind((KERNEL, 4000))?;
            let payload = vec![7; 65_507];
            socket.send_to(&payload, (OURS, 5000))?;
            let frame = receive_until(&mut tun, |frame| frame.bytes.len() > 60_000)?;
            let view = View::parse(&frame.bytes, Medium::Ip)?;
            ensure!(view.payload == payload, "the largest datagram passes whole");
            Ok(())
        })?
    }

    fn an_inherited_descriptor_goes_on_where_its_owner_stopped(lab) {
        let namespace = lab.namespace("tap")?;
        namespace.within(|| -> Result<()> {
            let owner = Tap::open(&options(1500, true))?;
            let inherited = owner.try_clone_descriptor()?;
            let with_no_name = TapOptions { name: String::new(), mtu: None, ..options(1500, true) };
            let mut worker = Tap::from_descriptor(inherited, &with_no_name)?;
            assert_eq!((worker.name(), worker.capabilities().mtu), ("ob0", 1500));
            kernel_hardware(&mut worker)?;
            drop(worker);
            let again = owner.try_clone_descriptor()?;
            ensure!(features(&namespace)?.contains("tcp-segmentation-offload: on"), "the worker's end resets nothing");
            Tap::reset_offload(again.as_fd())?;
            ensure!(features(&namespace)?.contains("tcp-segmentation-offload: off"));
            let not_a_tap = std::fs::File::open("/dev/null")?;
            Tap::from_descriptor(not_a_tap.into(), &with_no_name).expect_err("/dev/null is no interface");
            Ok(())
        })?
    }

    fn a_persistent_interface_outlives_its_descriptor_without_offload(lab) {
        let namespace = lab.namespace("tap")?;
        namespace.within(|| -> Result<()> {
            ensure!(!Tap::exists("ob0")?);
            let tap = Tap::open(&options(1500, true))?;
            ensure!(Tap::exists("ob0")?);
            tap.set_persistent(true)?;
            drop(tap);
            ensure!(Tap::exists("ob0")?, "it is persistent");
            ensure!(features(&namespace)?.contains("tcp-segmentation-offload: off"));
            // A failure after the offload flags were set takes them back as well.
            Tap::open(&options(575, true)).expect_err("the MTU is impossible");
            ensure!(features(&namespace)?.contains("tcp-segmentation-offload: off"));
            Tap::open(&options(1500, false))?.set_persistent(false)?;
            ensure!(!Tap::exists("ob0")?, "it is gone with its last descriptor");
            ensure!(Tap::exists("not/a name").is_err());
            Ok(())
        })?
    }

    fn runs_of_datagrams_pass_whole_and_arrive_one_by_one(lab) {
        for offload in [true, false] {
            lab.namespace("tap")?.within(|| -> Result<()> {
                let mut tap = Tap::open(&options(1500, offload))?;
                let socket = UdpSocket::bind((KERNEL, 4000))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                let payload: Vec<u8> = (0..20_500u32).map(|n| (n % 253) as u8).collect();
                send_datagrams(&mut tap, &payload, 1000)?;
                for (index, piece) in payload.chunks(1000).enumerate() {
                    let mut got = [0; 2000];
                    let (length, _) = socket.recv_from(&mut got)?;
                    ensure!(&got[..length] == piece, "offload {offload}, piece {index}: {length} bytes");
                }
                Ok(())
            })??;
        }
        Ok(())
    }

    fn what_the_driver_cannot_cut_is_an_error_and_not_sent(lab) {
        lab.namespace("tap")?.within(|| -> Result<()> {
            let mut tap = Tap::open(&options(1500, false))?;
            let frame = TxFrame {
                headers: &[0xff; 60],
                payload: [&[0; 3000], &[]],
                checksum: ChecksumOut::Complete,
                segmentation: Segmentation::Tcp4 { segment_size: 1000 },
            };
            let error = tap.transmit(&frame).expect_err("these are no TCP headers");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            assert_eq!((tap.stats().errors_out, tap.stats().frames_out), (1, 0));
            Ok(())
        })?
    }

    fn a_partial_checksum_is_completed_where_the_device_does_not(lab) {
        lab.namespace("tap")?.within(|| -> Result<()> {
            let mut tap = Tap::open(&options(1500, false))?;
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 4000))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let kernel = kernel_hardware(&mut tap)?;
            let mut bytes = headers(kernel, Protocol::UDP, udp::HEADER_LEN, 5);
            let checksum = Sum::pseudo_header_v4(OURS, KERNEL, Protocol::UDP, 13).fold();
            udp::Header { src_port: 5000, dst_port: 4000, len: 13, checksum }.emit(&mut bytes[34..]);
            let left = ChecksumOut::Partial { start: 34, offset: 6 };
            transmit(&mut tap, &bytes, [b"hel", b"lo"], left, Segmentation::None)?;
            let mut got = [0; 100];
            assert_eq!(socket.recv_from(&mut got)?.0, 5);
            assert_eq!(&got[..5], b"hello");
            socket.send_to(b"answer", (OURS, 5000))?;
            let answer = receive_until(&mut tap, |frame| is_ipv4(frame, Protocol::UDP))?;
            assert_eq!(answer.checksum, ChecksumIn::Unknown);
            ensure!(udp::verify(KERNEL.into(), OURS.into(), &answer.bytes[34..]), "the kernel sums without offload");
            let plain = RxFrame::plain(&answer.bytes);
            assert_eq!((plain.segment_size, plain.checksum), (0, ChecksumIn::Unknown));
            Ok(())
        })?
    }
}
