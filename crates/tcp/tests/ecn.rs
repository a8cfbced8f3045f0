//! Explicit congestion notification, both ends (RFC 3168).

mod harness;

use base::Duration;
use harness::peer::{ACK, Peer, SYN_ACK};
use harness::world::{Path, World};
use tcp::{Config, Ecn, State};
use wire::tcp::{Flags, Options};

fn config() -> Config {
    Config { ecn: true, nodelay: true, ..Config::default() }
}

fn established() -> Peer {
    let mut peer = Peer::syn_sent(&config());
    let mut header = peer.header(SYN_ACK | Flags::ECE, -1, 0);
    header.options = Options { mss: Some(1000), ..Options::default() };
    peer.give(header, &[]);
    assert!(peer.conn.info().ecn);
    peer.drain();
    peer
}

#[test]
fn it_is_used_only_if_both_agree() {
    let mut peer = Peer::syn_sent(&config());
    let header = peer.header(SYN_ACK, -1, 0);
    peer.give(header, &[]);
    assert!(!peer.conn.info().ecn);
    // A SYN-ACK that merely reflects both bits comes from something that does not understand them (RFC 3168 §6.1.1.1).
    let mut peer = Peer::syn_sent(&config());
    let header = peer.header(SYN_ACK | Flags::ECE | Flags::CWR, -1, 0);
    peer.give(header, &[]);
    assert_eq!(peer.conn.state(), State::Established);
    assert!(!peer.conn.info().ecn);
}

#[test]
fn a_repeated_syn_asks_no_more() {
    let mut peer = Peer::syn_sent(&config());
    peer.wait_for_deadline();
    assert_eq!(peer.poll().unwrap().flags, Flags::SYN);
}

#[test]
fn a_mark_is_echoed_until_the_sender_has_reduced() {
    let mut peer = established();
    peer.ecn = Ecn::Ce;
    peer.more(1000);
    peer.ecn = Ecn::Ect0;
    assert_eq!(peer.poll().unwrap().flags, ACK | Flags::ECE);
    peer.more(1000);
    assert_eq!(peer.poll().unwrap().flags, ACK | Flags::ECE);
    let header = peer.header(ACK | Flags::CWR, 2000, 0);
    peer.give(header, &[harness::pattern(0, 2000)]);
    assert_eq!(peer.poll().unwrap().flags, ACK);
    assert_eq!(peer.conn.stats().congestion_marks, 1);
}

#[test]
fn an_echo_reduces_once_for_a_window_and_is_answered() {
    let mut peer = established();
    peer.send(30_000);
    let segment = peer.poll_raw().unwrap();
    assert_eq!(segment.ecn, Ecn::Ect0);
    peer.drain();
    let before = peer.conn.congestion_window();
    // The peer echoes the mark up to the end of the window: CWR comes with what follows it.
    for ack in 1..=10 {
        let header = peer.header(ACK | Flags::ECE, 0, ack * 1000);
        peer.give(header, &[]);
    }
    let reduced = peer.conn.congestion_window();
    assert!(reduced < before && reduced >= before / 2, "{before} {reduced}");
    assert_eq!(peer.conn.stats().congestion_echoes, 1);
    assert_eq!(peer.conn.stats().retransmissions, 0);
    let segment = peer.poll_raw().unwrap();
    assert!(segment.header.flags.contains(Flags::CWR));
    assert!(!peer.poll_raw().unwrap().header.flags.contains(Flags::CWR));
    let header = peer.header(ACK | Flags::ECE, 0, 11_000);
    peer.give(header, &[]);
    assert_eq!(peer.conn.stats().congestion_echoes, 2, "another mark");
}

#[test]
fn retransmissions_and_acknowledgements_are_not_capable() {
    let mut peer = established();
    peer.send(1000);
    peer.drain();
    peer.wait_for_deadline();
    assert_eq!(peer.poll_raw().unwrap().ecn, Ecn::NotEct);
    peer.more(100);
    assert_eq!(peer.poll_raw().unwrap().ecn, Ecn::NotEct);
}

#[test]
fn a_marking_queue_is_kept_short_without_loss() {
    let path = Path { rate: 12_500_000, queue: 2_000_000, mark: 100_000, ..Path::default() };
    let mut world = World::new(9, &config(), &path);
    world.hosts[0].to_send = 40_000_000;
    world.run_until(Duration::from_secs(20), World::transfers_done);
    let stats = world.hosts[0].conn.stats();
    assert_eq!((world.dropped, stats.retransmissions), (0, 0));
    assert!(stats.congestion_echoes >= 2);
    assert!(world.hosts[1].conn.stats().congestion_marks >= 2);
}
