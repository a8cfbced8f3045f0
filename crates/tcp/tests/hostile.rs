//! Any segments whatever: nothing panics, nothing is corrupted, the laws hold.

#![allow(clippy::unwrap_used, reason = "a broken harness is a failed test")]

mod harness;

use base::Duration;
use harness::pattern;
use harness::peer::{ACK, ISS, Peer, SYN_ACK};
use proptest::prelude::*;
use tcp::{Config, Connection, RestoreError, Snapshot, State};
use wire::tcp::{Flags, Options, Timestamps};

/// What an enemy, or the owner, does next.
#[derive(Clone, Debug)]
enum Act {
    Segment {
        flags: u16,
        seq: i64,
        ack: i64,
        len: usize,
        window: u16,
        stamp: Option<(i32, u32)>,
        sack: Vec<(i64, i64)>,
    },
    Wait(u64),
    Deadline,
    Send(u64),
    Read,
    Shutdown,
    Close,
    Mtu(u16),
    Restart,
}

fn near() -> impl Strategy<Value = i64> {
    prop_oneof![-3i64..3, -20_000i64..20_000, Just(1000), Just(65_535), any::<i32>().prop_map(i64::from),]
}

fn act() -> impl Strategy<Value = Act> {
    let stamp = proptest::option::weighted(0.7, (-5i32..50, any::<u32>()));
    let sack = proptest::collection::vec((near(), near()), 0..4);
    let flags = prop_oneof![3 => Just(0x10u16), 1 => Just(0x11), 1 => 0u16..0x200];
    prop_oneof![
        10 => (flags, near(), near(), 0usize..3000, any::<u16>(), stamp, sack).prop_map(
            |(flags, seq, ack, len, window, stamp, sack)| Act::Segment { flags, seq, ack, len, window, stamp, sack }
        ),
        3 => (0u64..3_000_000_000).prop_map(Act::Wait),
        3 => Just(Act::Deadline),
        3 => (0u64..30_000).prop_map(Act::Send),
        2 => Just(Act::Read),
        1 => Just(Act::Shutdown),
        1 => Just(Act::Close),
        1 => any::<u16>().prop_map(Act::Mtu),
        1 => Just(Act::Restart),
    ]
}

/// Sequence numbers are relative to what the connection expects, so that many segments are nearly right.
fn perform(peer: &mut Peer, act: &Act) {
    match act {
        Act::Segment { flags, seq, ack, len, window, stamp, sack } => {
            let from = peer.conn.received_to() as i64 + seq;
            let acked = peer.conn.acked_to() as i64;
            peer.window = *window;
            peer.timestamp = stamp.map(|(delta, _)| 1000u32.wrapping_add_signed(delta));
            peer.sack = sack.iter().map(|&(s, e)| ((acked + s) as u64, (acked + s + e) as u64)).collect();
            let mut header = peer.header(Flags::from_bits_truncate(*flags), from, acked + ack);
            if let (Some(stamps), Some((_, echo))) = (&mut header.options.timestamps, stamp) {
                stamps.echo = *echo;
            }
            let payload: Vec<u8> =
                (0..*len as i64).map(|i| pattern(0, from.wrapping_add(i) as u64)).collect();
            let segment = harness::world::Flying { header, payload, count: 1, ecn: tcp::Ecn::NotEct };
            // Bytes before the start of the stream cannot be given a pattern; such segments carry none.
            let payload = if from < 0 { &[][..] } else { &segment.payload };
            peer.buffer.limit = peer.conn.consumed_to() + peer.conn.receive_limit();
            peer.give(segment.header, payload);
        }
        Act::Wait(nanos) => {
            peer.wait(Duration::from_nanos(*nanos));
        }
        Act::Deadline => {
            if peer.conn.deadline().is_some() {
                peer.wait_for_deadline();
            }
        }
        Act::Send(more) => {
            let queued = peer.conn.queued_to() + more;
            peer.send(queued);
        }
        Act::Read => {
            let received = peer.conn.received_to();
            peer.conn.handle_consumed(peer.now, received);
        }
        Act::Shutdown => peer.conn.handle_shutdown(),
        Act::Close => peer.conn.handle_close(peer.now),
        Act::Mtu(mtu) => {
            let unacked = base::SeqNumber(ISS) + 1 + peer.conn.acked_to() as u32;
            peer.conn.handle_too_big(peer.now, *mtu, unacked);
            peer.conn.handle_path_mtu(mtu.wrapping_mul(3));
        }
        Act::Restart => {
            peer.conn = Connection::restore(&peer.conn.snapshot(), peer.now).unwrap();
            peer.buffer.forget_beyond(peer.conn.received_to());
        }
    }
    peer.conn.check_invariants().unwrap();
    let received = peer.conn.received_to();
    assert!(peer.buffer.covers(received), "received what was never placed");
    for _ in 0..2000 {
        if peer.poll_raw().is_none() {
            return;
        }
    }
    panic!("endless output");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_segments_break_a_connection(
        acts in proptest::collection::vec(act(), 1..60),
        sack in any::<bool>(),
        stamps in any::<bool>(),
        super_segments in any::<bool>(),
        early in any::<bool>(),
    ) {
        let options = Options {
            mss: Some(1000),
            sack_permitted: sack,
            window_scale: Some(4),
            timestamps: stamps.then_some(Timestamps { value: 1000, echo: 0 }),
            ..Options::default()
        };
        let mut peer = if early {
            let mut peer = Peer::syn_sent(&Config::default());
            let mut header = peer.header(SYN_ACK, -1, 0);
            header.options = options;
            peer.give(header, &[]);
            peer
        } else {
            Peer::established_with(&Config::default(), options)
        };
        peer.max_payload = if super_segments { 20_000 } else { 0 };
        for act in &acts {
            perform(&mut peer, act);
        }
    }

    #[test]
    fn no_segments_break_an_opening(acts in proptest::collection::vec(act(), 1..20), passive in any::<bool>()) {
        let mut peer = if passive {
            Peer::syn_received(&Config::default(), Options::default())
        } else {
            Peer::syn_sent(&Config::default())
        };
        // A SYN with any sequence number decides where the stream begins: there is no pattern to compare with.
        peer.buffer.checks = false;
        for act in &acts {
            perform(&mut peer, act);
        }
    }

    /// A snapshot with any bytes is refused or goes on without a panic.
    #[test]
    fn any_bytes_are_refused_as_a_snapshot_or_work(
        changes in proptest::collection::vec((0usize..Snapshot::SIZE - 8, any::<u8>()), 1..20),
        reseal in any::<bool>(),
    ) {
        let mut peer = Peer::established(&Config::default());
        peer.send(5000);
        peer.drain();
        let mut bytes = *peer.conn.snapshot().as_bytes();
        let original = bytes;
        for (at, value) in changes {
            bytes[at] = value;
        }
        prop_assume!(bytes != original);
        let snapshot = Snapshot::from_bytes(bytes);
        if !reseal {
            prop_assert_eq!(Connection::restore(&snapshot, peer.now).err(), Some(RestoreError::Checksum));
            return Ok(());
        }
        if let Ok(conn) = Connection::restore(&snapshot.resealed(), peer.now) {
            peer.conn = conn;
            peer.conn.check_invariants().unwrap();
            let state = peer.conn.state();
            for _ in 0..50 {
                if peer.poll_raw().is_none() {
                    break;
                }
            }
            if state != State::Closed {
                let header = peer.header(ACK, 0, 1000);
                peer.give(header, &[]);
            }
        }
    }
}

#[test]
fn a_snapshot_of_every_state_goes_on() {
    let mut peer = Peer::established(&Config::default());
    peer.conn.handle_shutdown();
    peer.drain();
    let copy = Connection::restore(&peer.conn.snapshot(), peer.now).unwrap();
    assert_eq!(copy.state(), State::FinWait1);
    peer.ack(1);
    peer.fin();
    peer.drain();
    let copy = Connection::restore(&peer.conn.snapshot(), peer.now).unwrap();
    assert_eq!(copy.state(), State::TimeWait);
    assert_eq!(copy.deadline(), peer.conn.deadline());
}
