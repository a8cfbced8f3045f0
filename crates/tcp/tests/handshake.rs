//! Opening a connection, packet by packet.

mod harness;

use base::{Duration, Instant};
use harness::peer::{ACK, ISS, Peer, RST, SYN, SYN_ACK};
use tcp::{Config, Error, IcmpError, State, Verdict};
use wire::tcp::{Options, Timestamps};

#[test]
fn both_announcements_bound_the_segment_and_options_are_taken_off() {
    let stamps = Some(Timestamps { value: 5, echo: 0 });
    let options = Options { mss: Some(1200), timestamps: stamps, ..Options::default() };
    let peer = Peer::established_with(&Config::default(), options);
    assert_eq!(peer.conn.mss(), 1200 - 12);
    // RFC 9293 §3.7.1: 536 if the peer says nothing.
    let peer = Peer::established_with(&Config::default(), Options::default());
    assert_eq!(peer.conn.mss(), 536);
    // A ridiculous announcement is not believed.
    let peer = Peer::established_with(&Config::default(), Options { mss: Some(1), ..Options::default() });
    assert!(peer.conn.mss() >= 36);
}

#[test]
fn options_are_used_only_if_both_sides_send_them() {
    let peer = Peer::established(&Config::default());
    let info = peer.conn.info();
    assert!(!info.timestamps && !info.sack && info.send_scale.is_none());
    let options = Options {
        window_scale: Some(200),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        ..Options::default()
    };
    let peer = Peer::established_with(&Config::default(), options.clone());
    let info = peer.conn.info();
    assert!(info.timestamps && info.sack);
    assert_eq!(info.send_scale, Some(14), "RFC 7323 §2.3: a larger shift is taken as 14");
    assert_eq!(info.send_window, 60_000, "the window of a SYN is not scaled");
    let plain =
        Config { window_scaling: false, timestamps: false, selective_acks: false, ..Config::default() };
    let info = Peer::established_with(&plain, options).conn.info();
    assert!(!info.timestamps && !info.sack && info.send_scale.is_none());
}

#[test]
fn a_wrong_acknowledgement_in_syn_sent_wants_a_reset() {
    let mut peer = Peer::syn_sent(&Config::default());
    let header = peer.header(SYN_ACK, -1, 5);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeReset);
    assert!(Verdict::HandshakeReset.wants_reset());
    assert_eq!(peer.conn.state(), State::SynSent);
    let header = peer.header(SYN_ACK, -1, -1);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeReset, "the SYN itself is not acknowledged");
    let header = peer.header(SYN_ACK | RST, -1, 5);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeIgnored);
}

/// RFC 9293 §3.5 figure 9: the peer has an old connection between the same ports.
#[test]
fn a_syn_follows_the_reset_of_an_old_connection_at_once_but_only_once() {
    let mut peer = Peer::syn_sent(&Config::default());
    for _ in 0..3 {
        let header = peer.header(ACK, 300, 100);
        assert_eq!(peer.give(header, &[]), Verdict::HandshakeReset);
        peer.wait(Duration::from_millis(1));
    }
    assert!(peer.wait_for_deadline() <= Duration::from_millis(5));
    assert_eq!(peer.poll().unwrap().flags, SYN);
    let header = peer.header(ACK, 300, 100);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeReset);
    assert!(peer.wait_for_deadline() >= Duration::from_secs(1), "not again and again");
}

#[test]
fn a_reset_refuses_only_if_it_acknowledges_the_syn() {
    let mut peer = Peer::syn_sent(&Config::default());
    let header = peer.header(RST, -1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeIgnored);
    let header = peer.header(RST | ACK, -1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetAccepted);
    assert_eq!(peer.conn.error(), Some(Error::Refused));
    assert_eq!(peer.conn.state(), State::Closed);
    assert_eq!(peer.conn.deadline(), None);
}

#[test]
fn syns_back_off_and_give_up() {
    let mut peer = Peer::syn_sent(&Config::default());
    let mut waits = Vec::new();
    loop {
        waits.push(peer.wait_for_deadline().as_millis());
        match peer.poll() {
            Some(seen) => assert_eq!((seen.flags, seen.seq), (SYN, -1)),
            None => break,
        }
    }
    assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]);
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
}

#[test]
fn simultaneous_open_needs_no_third_party() {
    let mut peer = Peer::syn_sent(&Config::default());
    let header = peer.header(SYN, -1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::Accepted);
    assert_eq!(peer.conn.state(), State::SynReceived);
    let answer = peer.poll().unwrap();
    assert_eq!((answer.flags, answer.seq, answer.ack), (SYN_ACK, -1, 0));
    let header = peer.header(SYN_ACK, -1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::Accepted);
    assert_eq!(peer.conn.state(), State::Established);
    assert_eq!(peer.poll().unwrap().flags, ACK);
    // And by the bare acknowledgement of figure 8.
    let mut peer = Peer::syn_sent(&Config::default());
    let header = peer.header(SYN, -1, 0);
    peer.give(header, &[]);
    peer.drain();
    peer.ack(0);
    assert_eq!(peer.conn.state(), State::Established);
}

#[test]
fn a_passive_open_ends_in_three_ways() {
    let options = || Options { mss: Some(1000), ..Options::default() };
    let mut peer = Peer::syn_received(&Config::default(), options());
    peer.ack(0);
    assert_eq!(peer.conn.state(), State::Established);
    assert!(peer.conn.is_passive());

    let mut peer = Peer::syn_received(&Config::default(), options());
    let header = peer.header(RST, 0, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ReturnedToListen);
    assert_eq!((peer.conn.state(), peer.conn.error()), (State::Closed, None));

    let mut peer = Peer::syn_received(&Config::default(), options());
    let header = peer.header(ACK, 0, 100);
    assert_eq!(peer.give(header, &[]), Verdict::HandshakeReset);
    assert_eq!(peer.conn.state(), State::SynReceived);
}

#[test]
fn a_repeated_syn_gets_its_answer_again_but_not_for_ever() {
    let mut peer = Peer::syn_received(&Config::default(), Options::default());
    let mut answers = 0;
    for _ in 0..50 {
        let header = peer.header(SYN, -1, 0);
        peer.give(header, &[]);
        answers += peer.drain().len();
    }
    assert_eq!(answers, 10);
}

#[test]
fn data_with_the_last_acknowledgement_is_taken() {
    let mut peer = Peer::syn_received(&Config::default(), Options::default());
    assert_eq!(peer.more(500), Verdict::Accepted);
    assert_eq!(peer.conn.state(), State::Established);
    assert_eq!(peer.conn.received_to(), 500);
}

#[test]
fn data_and_fin_queued_early_follow_the_handshake() {
    let mut peer = Peer::syn_sent(&Config::default());
    peer.send(300);
    peer.conn.handle_shutdown();
    assert_eq!(peer.poll(), None);
    let header = peer.header(SYN_ACK, -1, 0);
    peer.give(header, &[]);
    assert_eq!(peer.conn.state(), State::FinWait1);
    let seen = peer.poll().unwrap();
    assert_eq!((seen.seq, seen.len, seen.flags.contains(wire::tcp::Flags::FIN)), (0, 300, true));
}

#[test]
fn an_attempt_ends_with_what_a_router_says_of_the_way() {
    for (told, error) in [
        (IcmpError::NetworkUnreachable, Some(Error::NetworkUnreachable)),
        (IcmpError::HostUnreachable, Some(Error::HostUnreachable)),
        (IcmpError::ProtocolUnreachable, Some(Error::ProtocolUnreachable)),
        (IcmpError::PortUnreachable, Some(Error::Refused)),
        (IcmpError::SourceRouteFailed, Some(Error::SourceRouteFailed)),
        (IcmpError::HostUnknown, Some(Error::HostUnknown)),
        (IcmpError::HostIsolated, Some(Error::HostIsolated)),
        (IcmpError::TimeExceeded, None),
        (IcmpError::ParameterProblem, None),
    ] {
        let mut peer = Peer::syn_sent(&Config::default());
        assert!(peer.conn.handle_icmp_error(told, base::SeqNumber(ISS)));
        assert_eq!(peer.conn.error(), error, "{told:?}");
        assert_eq!(peer.conn.state() == State::Closed, error.is_some());
    }
}

#[test]
fn segments_are_no_larger_than_what_was_announced_whatever_the_path_takes() {
    let config = Config { mss: 1460, announced_mss: 1000, ..Config::default() };
    let options = Options { mss: Some(1460), ..Options::default() };
    let peer = Peer::established_with(&config, options);
    assert_eq!(peer.conn.mss(), 1000);
    assert_eq!(peer.conn.tcp_info(peer.now).pmtu, 1500);
    let options = Options { mss: Some(700), ..Options::default() };
    assert_eq!(Peer::established_with(&config, options).conn.mss(), 700, "the peer's word counts, too");
}

#[test]
fn icmp_errors_count_only_for_what_is_in_flight() {
    let mut peer = Peer::syn_sent(&Config::default());
    let iss = base::SeqNumber(ISS);
    assert!(!peer.conn.handle_icmp_error(IcmpError::PortUnreachable, iss + 5));
    assert_eq!(peer.conn.state(), State::SynSent);
    assert!(peer.conn.handle_icmp_error(IcmpError::PortUnreachable, iss));
    assert_eq!(peer.conn.error(), Some(Error::Refused));

    // RFC 5927 §5: on an established connection, a hard error is as soft as the others.
    let mut peer = Peer::established(&Config::default());
    peer.send(100);
    peer.drain();
    assert!(peer.conn.handle_icmp_error(IcmpError::PortUnreachable, iss + 1));
    assert_eq!(peer.conn.state(), State::Established);
    // But it names the reason if nothing is heard any more.
    while peer.conn.state() != State::Closed {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.conn.error(), Some(Error::Refused));
}

#[test]
fn the_first_window_is_ten_segments_or_one_after_trouble() {
    let mut peer = Peer::established(&Config::default());
    peer.send(100_000);
    assert_eq!(peer.drain().len(), 10);
    let mut peer = Peer::syn_sent(&Config::default());
    for _ in 0..2 {
        peer.wait_for_deadline();
        peer.drain();
    }
    let header = peer.header(SYN_ACK, -1, 0);
    peer.give(header, &[]);
    peer.send(100_000);
    assert_eq!(peer.drain().len(), 1);
    assert_eq!(peer.conn.info().rto, Duration::from_secs(3), "RFC 6298 §5.7");
}

#[test]
fn a_smaller_path_and_a_larger_one() {
    let mut peer =
        Peer::established_with(&Config::default(), Options { mss: Some(1460), ..Options::default() });
    peer.send(20_000);
    assert_eq!(peer.drain()[0], (0, 1460));
    peer.conn.handle_path_mtu(1000);
    assert_eq!(peer.conn.mss(), 960);
    let again = peer.drain();
    assert_eq!(again[0], (0, 960), "at once, without waiting for a timeout");
    assert_eq!(peer.conn.congestion_window(), 14_600, "it was no congestion");
    peer.conn.handle_path_mtu(20);
    assert!(peer.conn.mss() >= 36);
}

#[test]
fn the_clock_may_start_anywhere() {
    let mut peer = Peer::established(&Config::default());
    peer.now = Instant::from_nanos(u64::MAX / 4);
    peer.send(10);
    peer.drain();
    peer.ack(10);
    assert_eq!(peer.conn.acked_to(), 10);
}
