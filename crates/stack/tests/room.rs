//! Segments for a device that cuts nothing, made several at a time because it has room for them, and received without
//! being verified first: what arrives is what was sent, whatever is damaged on the way.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use base::{Duration, Instant, Rng, SeededRng};
use outboard_stack::{
    ConflictDetection, FrameSink, HeapBuffers, HeapStream, InterfaceConfig, InterfaceId, SinkFull,
    SocketOptions, Stack, StackConfig,
};
use wire::checksum;
use wire::cut::cut;
use wire::ethernet::EthernetAddress;
use wire::frame::{Capabilities, Medium, RxFrame, Segmentation, TxFrame};

const MTU: usize = 1500;
const BYTES: usize = 400_000;

/// A link with room for so many frames.
struct Link {
    frames: Vec<Vec<u8>>,
    room: usize,
}

impl FrameSink for Link {
    fn ready(&self, _: InterfaceId) -> bool {
        self.frames.len() < self.room
    }

    fn room(&self, _: InterfaceId) -> usize {
        self.room - self.frames.len()
    }

    fn transmit(&mut self, _: InterfaceId, frame: &TxFrame<'_>) -> Result<(), SinkFull> {
        assert_eq!(frame.segmentation, Segmentation::None, "this device cuts nothing");
        assert!(self.frames.len() < self.room && frame.frame_len() <= MTU, "{}", frame.frame_len());
        let mut whole = Vec::new();
        // Not to be cut, its checksum is completed all the same.
        cut(frame, Medium::Ip, |headers, payload| whole = [headers, payload[0], payload[1]].concat())
            .unwrap();
        let place = checksum::locate(&whole, Medium::Ip).unwrap();
        let address = |at: usize| std::net::IpAddr::from(*whole[at..].first_chunk::<4>().unwrap());
        assert!(checksum::verify_tcp(address(12), address(16), &whole[place.start..]));
        self.frames.push(whole);
        Ok(())
    }
}

fn host(number: u8, checksum_tx: bool) -> (Stack<HeapBuffers>, InterfaceId) {
    let config = StackConfig { conflict_detection: ConflictDetection::Off, ..StackConfig::default() };
    let mut host = Stack::new(config, SeededRng::new(number.into()), [number; 16]);
    let capabilities = Capabilities {
        medium: Medium::Ip,
        mtu: MTU as u16,
        checksum_tx,
        checksum_rx: false,
        max_segmentation: 0,
        hardware_address: EthernetAddress::default(),
    };
    let addresses = vec![format!("10.0.0.{number}/24").parse().unwrap()];
    let interface =
        host.add_interface(Instant::ZERO, InterfaceConfig { name: "link".into(), capabilities, addresses });
    (host, interface)
}

/// Carries a stream while one frame of so many is damaged; returns how many were, and how many segments went in one.
fn transfer(room: usize, checksum_tx: bool, one_of: u64) -> (u64, f64) {
    let ((mut client, interface), (mut server, _)) = (host(1, checksum_tx), host(2, checksum_tx));
    let options = SocketOptions::default();
    let listener = server.tcp_listen("10.0.0.2:80".parse().unwrap(), 1, (), &options).unwrap();
    let mut now = Instant::from_millis(1000);
    let to = "10.0.0.2:80".parse().unwrap();
    let from = client.tcp_connect(now, None, to, HeapStream::default(), &options).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
    let (mut rng, mut damaged, mut read, mut accepted) = (SeededRng::new(7), 0, Vec::new(), None);
    let queued = client.stream(from).unwrap().write(&sent);
    client.tcp_send(from, queued);
    while read.len() < BYTES {
        now += Duration::from_millis(1);
        assert!(now < Instant::from_millis(600_000), "{} bytes arrived", read.len());
        let mut links = [Link { frames: Vec::new(), room }, Link { frames: Vec::new(), room }];
        client.handle_deadlines(now);
        server.handle_deadlines(now);
        client.poll_transmit(now, &mut links[0]);
        server.poll_transmit(now, &mut links[1]);
        for (link, receiver) in links.iter_mut().zip([&mut server, &mut client]) {
            for frame in &mut link.frames {
                if one_of > 0 && rng.below(one_of) == 0 {
                    let at = rng.below(frame.len() as u64) as usize;
                    frame[at] ^= 1 << rng.below(8);
                    damaged += 1;
                }
                receiver.handle_frame(now, interface, &RxFrame::plain(frame));
            }
        }
        accepted = accepted.or_else(|| server.tcp_accept(listener));
        if let Some(id) = accepted {
            let (connection, stream) = server.tcp_and_stream(id).unwrap();
            let consumed = stream.read(connection.received_to(), &mut read);
            server.tcp_consumed(now, id, consumed);
        }
        let (connection, stream) = client.tcp_and_stream(from).unwrap();
        stream.release(connection.acked_to());
    }
    assert!(read == sent, "the bytes that were sent");
    let stats = [client.stats(), server.stats()];
    let refused: u64 = stats.iter().map(|stats| stats.transmit_refused).sum();
    assert_eq!(refused, 0);
    let dropped: u64 = stats.iter().map(|stats| stats.drop_tcp_checksum).sum();
    assert!(dropped <= damaged && (damaged == 0 || dropped > 0), "{dropped} of {damaged}");
    (damaged, stats[0].frames_out as f64 / stats[0].tcp_out as f64)
}

#[test]
fn several_segments_are_made_at_a_time_where_there_is_room() {
    for checksum_tx in [false, true] {
        let (_, alone) = transfer(1, checksum_tx, 0);
        assert!(alone == 1.0, "{alone}");
        let (_, together) = transfer(64, checksum_tx, 0);
        assert!(together > 4.0, "{together} segments at a time");
        for room in [2, 3, 5, 17] {
            transfer(room, checksum_tx, 0);
        }
    }
}

#[test]
fn damaged_segments_leave_nothing_behind() {
    for (room, one_of) in [(1, 20), (8, 20), (64, 50)] {
        let (damaged, _) = transfer(room, room > 1, one_of);
        assert!(damaged > 3, "{damaged}");
    }
}
