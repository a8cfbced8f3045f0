//! TCP Fast Open (RFC 7413), packet by packet, from both ends.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod harness;

use base::{Duration, Instant, SeqNumber};
use harness::peer::{ACK, FIN_ACK, IRS, ISS, Peer, RST, SYN, SYN_ACK, blank};
use harness::world::addresses;
use harness::{CheckedBuffer, pattern};
use tcp::{
    Config, Connection, Cookie, Ecn, Error, FastOpen, FastOpenProgress, SegmentIn, SegmentOut, Snapshot,
    State, TooBigVerdict, Verdict,
};
use wire::tcp::{Header, Options};

fn start() -> Instant {
    Instant::from_millis(100_000)
}

fn cookie() -> Cookie {
    [1, 2, 3, 4, 5, 6, 7, 8].into_iter().collect()
}

fn with_cookie() -> FastOpen {
    FastOpen { cookie: cookie(), peer_mss: 1000, wait_for_data: true }
}

/// A client about to send its SYN, with so much queued.
fn client(request: FastOpen, queued: u64) -> Peer {
    client_by(&Config::default(), request, queued)
}

fn client_by(config: &Config, request: FastOpen, queued: u64) -> Peer {
    let [local, remote] = addresses();
    let config = Config { nodelay: true, ..config.clone() };
    let mut conn = Connection::connect(start(), &config, local, remote, SeqNumber(ISS), 7);
    conn.use_fast_open(request);
    conn.handle_send(queued);
    Peer::around(conn)
}

fn syn_ack(peer: &mut Peer, acked: i64, cookie: Option<Cookie>, payload: &[u8]) -> Verdict {
    let mut header = peer.header(SYN_ACK, -1, acked);
    header.options = Options { mss: Some(1000), fast_open: cookie, ..Options::default() };
    peer.give(header, payload)
}

fn bytes(side: usize, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|offset| pattern(side, offset)).collect()
}

/// A server whose listener found the cookie good: `len` bytes in the SYN.
fn server(config: &Config, len: u64) -> Peer {
    let [local, remote] = addresses();
    let payload = bytes(0, 0, len);
    let header = Header {
        seq: SeqNumber(IRS),
        window: 60_000,
        options: Options { mss: Some(1000), fast_open: Some(cookie()), ..Options::default() },
        ..blank(SYN)
    };
    let syn = SegmentIn { header, payload: &payload, arrival: start(), segment_count: 1, ecn: Ecn::NotEct };
    let conn = Connection::accept(start(), config, local, remote, SeqNumber(ISS), 7, &syn);
    let mut peer = Peer::around(conn);
    peer.conn.take_syn_data(&syn, &mut peer.buffer);
    peer.sent = len;
    peer
}

fn restarted(peer: &Peer) -> Connection {
    let copy = Snapshot::from_bytes(*peer.conn.snapshot().as_bytes());
    Connection::restore(&copy, peer.now).unwrap()
}

/// The first byte of what goes out next, and how much it is, with the raw segment.
fn next(peer: &mut Peer) -> SegmentOut {
    peer.poll_raw().expect("a segment")
}

#[test]
fn the_syn_carries_cookie_and_data_and_the_syn_ack_acknowledges_them() {
    let mut peer = client(with_cookie(), 300);
    let syn = next(&mut peer);
    assert_eq!((syn.header.flags, syn.len, syn.offset), (SYN, 300, 0));
    assert_eq!(syn.header.options.fast_open, Some(cookie()));
    assert_eq!(peer.conn.fast_open(), FastOpenProgress::Sent);
    assert!(peer.poll_raw().is_none());
    assert_eq!(syn_ack(&mut peer, 300, None, b""), Verdict::Accepted);
    assert_eq!(peer.conn.state(), State::Established);
    assert_eq!((peer.conn.acked_to(), peer.conn.fast_open()), (300, FastOpenProgress::Acknowledged));
    assert_eq!(peer.drain(), [(300, 0)], "only the acknowledgement is left to send");
    assert_eq!(peer.conn.stats().retransmissions, 0);
}

#[test]
fn what_the_server_did_not_take_goes_again_at_once_and_nothing_is_held_against_the_path() {
    for taken in [0, 120] {
        let mut peer = client(with_cookie(), 300);
        next(&mut peer);
        syn_ack(&mut peer, taken, None, b"");
        assert_eq!(peer.drain(), [(taken, 300 - taken as u32)]);
        assert_eq!(peer.conn.congestion_window(), 10 * u32::from(peer.conn.mss()));
        let progress = if taken == 0 { FastOpenProgress::Refused } else { FastOpenProgress::Acknowledged };
        assert_eq!(peer.conn.fast_open(), progress);
        peer.ack(300);
        assert_eq!((peer.conn.acked_to(), peer.conn.deadline()), (300, None));
    }
}

#[test]
fn a_syn_that_is_repeated_is_a_plain_one() {
    let mut peer = client(with_cookie(), 300);
    next(&mut peer);
    peer.wait_for_deadline();
    let again = next(&mut peer);
    assert_eq!((again.header.flags, again.len, again.header.seq), (SYN, 0, SeqNumber(ISS)));
    assert_eq!(again.header.options.fast_open, None);
    assert_eq!(peer.conn.fast_open(), FastOpenProgress::Abandoned);
    assert!(!peer.conn.wants_output(peer.now));
    // Only the repetition arrived.
    let mut other = Peer::around(peer.conn.clone());
    other.now = peer.now;
    syn_ack(&mut other, 0, None, b"");
    assert_eq!(other.drain(), [(0, 300)]);
    // The first one had arrived, and it was the answer that was lost.
    syn_ack(&mut peer, 300, None, b"");
    assert_eq!((peer.conn.acked_to(), peer.conn.fast_open()), (300, FastOpenProgress::Acknowledged));
    assert_eq!(peer.drain(), [(300, 0)]);
}

#[test]
fn a_syn_too_big_for_the_path_is_repeated_without_its_data_at_once() {
    let mut peer = client(with_cookie(), 900);
    assert_eq!(peer.poll_raw().unwrap().len, 900);
    assert_eq!(peer.conn.handle_too_big(peer.now, 600, SeqNumber(ISS)), TooBigVerdict::Taken);
    let syn = peer.poll_raw().unwrap();
    assert_eq!((syn.header.flags, syn.len), (SYN, 0));
    assert!(peer.poll_raw().is_none());
    syn_ack(&mut peer, 0, None, &[]);
    assert_eq!(next(&mut peer).len, 560, "behind the handshake, in segments that fit");
}

#[test]
fn who_has_no_cookie_asks_for_one_and_sends_nothing_in_the_syn() {
    let mut peer = client(FastOpen::default(), 300);
    let syn = next(&mut peer);
    assert_eq!((syn.len, syn.header.options.fast_open), (0, Some(Cookie::new())));
    assert_eq!(peer.conn.fast_open(), FastOpenProgress::Asked);
    syn_ack(&mut peer, 0, Some(cookie()), b"");
    assert_eq!(peer.drain(), [(0, 300)]);
    assert_eq!(peer.conn.stats().retransmissions, 0);
}

#[test]
fn the_syn_takes_no_more_than_the_known_mss_less_all_options() {
    for (known, expected) in [(1000u16, 1000u32), (0, 536), (9000, 1460)] {
        let peer = client(FastOpen { peer_mss: known, ..with_cookie() }, 0);
        assert_eq!(peer.conn.tcp_info(peer.now).snd_mss, expected - 40, "what the first send may be");
        let mut peer = client(FastOpen { peer_mss: known, ..with_cookie() }, 5000);
        let syn = next(&mut peer);
        assert_eq!(syn.len, expected - 40, "there is room for all options");
        assert_eq!(u32::from(syn.segment_size), syn.len, "it is not cut");
        assert!(peer.poll_raw().is_none(), "the rest waits for the handshake");
        syn_ack(&mut peer, syn.len.into(), None, b"");
        assert_eq!(peer.poll().unwrap().seq, i64::from(syn.len));
    }
}

#[test]
fn the_syn_waits_for_data_or_for_the_end_of_it() {
    let mut peer = client(with_cookie(), 0);
    assert!(peer.conn.awaits_data() && peer.poll_raw().is_none());
    assert_eq!(peer.conn.deadline(), None);
    peer.send(10);
    assert!(!peer.conn.awaits_data());
    assert_eq!(next(&mut peer).len, 10);
    let mut peer = client(with_cookie(), 0);
    peer.conn.handle_shutdown();
    assert_eq!(next(&mut peer).len, 0);
    let mut peer = client(with_cookie(), 0);
    peer.conn.handle_close(peer.now);
    assert_eq!((peer.conn.state(), peer.poll_raw().is_none()), (State::Closed, true));
}

#[test]
fn a_syn_ack_may_bring_data() {
    let mut peer = client(with_cookie(), 300);
    next(&mut peer);
    let answer = bytes(0, 0, 700);
    syn_ack(&mut peer, 300, None, &answer);
    assert_eq!(peer.conn.received_to(), 700);
    assert_eq!(peer.poll().unwrap().ack, 700);
    // Beyond the window that our SYN offered, nothing is taken.
    let small = Config { initial_window: 500, ..Config::default() };
    let mut peer = client_by(&small, with_cookie(), 300);
    next(&mut peer);
    syn_ack(&mut peer, 300, None, &answer);
    assert_eq!(peer.conn.received_to(), 500);
    // Nor anything from a server that did not take ours.
    let mut peer = client(with_cookie(), 300);
    next(&mut peer);
    syn_ack(&mut peer, 0, None, &answer);
    assert_eq!(peer.conn.received_to(), 0);
}

#[test]
fn a_server_takes_the_data_gives_a_cookie_and_answers_before_the_handshake_is_over() {
    let mut peer = server(&Config { nodelay: true, ..Config::default() }, 300);
    peer.conn.give_cookie(cookie(), false);
    assert!(peer.conn.is_early());
    assert_eq!((peer.conn.received_to(), peer.conn.fast_open()), (300, FastOpenProgress::Taken));
    let answer = next(&mut peer);
    assert_eq!((answer.header.flags, answer.len), (SYN_ACK, 0));
    assert_eq!(answer.header.ack, SeqNumber(IRS) + 301);
    assert_eq!(answer.header.window, 65_535 - 300);
    assert_eq!(answer.header.options.fast_open, Some(cookie()));
    peer.send(2500);
    assert_eq!(peer.drain(), [(0, 1000), (1000, 1000), (2000, 500)]);
    // All of it is in flight when the handshake ends.
    peer.ack(1000);
    assert_eq!((peer.conn.state(), peer.conn.acked_to()), (State::Established, 1000));
    assert!(!peer.conn.is_early());
    peer.ack(2500);
    assert_eq!((peer.conn.acked_to(), peer.conn.deadline()), (2500, None));
}

#[test]
fn the_cookie_comes_in_the_option_that_the_syn_had() {
    for experimental in [false, true] {
        let mut peer = server(&Config::default(), 300);
        peer.conn.give_cookie(cookie(), experimental);
        let options = next(&mut peer).header.options;
        assert_eq!((options.fast_open, options.fast_open_experimental), (Some(cookie()), experimental));
        peer.wait_for_deadline();
        let again = next(&mut peer).header.options;
        assert_eq!((again.fast_open, again.fast_open_experimental), (None, experimental));
    }
}

#[test]
fn the_owner_is_told_of_whose_syn_the_connection_is() {
    for (len, options) in [(300, 0b1010_0000), (0, 0b1000_0000)] {
        let peer = server(&Config::default(), len);
        assert_eq!(peer.conn.tcp_info(peer.now).options & 0b1010_0000, options);
    }
    let peer = Peer::established(&Config::default());
    assert_eq!(peer.conn.tcp_info(peer.now).options & 0b1010_0000, 0);
}

#[test]
fn what_is_queued_before_the_syn_ack_goes_with_it() {
    let mut peer = server(&Config::default(), 300);
    peer.send(200);
    let answer = next(&mut peer);
    assert_eq!((answer.header.flags, answer.offset, answer.len), (SYN_ACK, 0, 200));
    assert!(peer.poll_raw().is_none());
    peer.ack(200);
    assert_eq!((peer.conn.state(), peer.conn.acked_to()), (State::Established, 200));
}

#[test]
fn a_lost_syn_ack_is_repeated_without_its_data_which_follows_the_handshake() {
    let mut peer = server(&Config::default(), 300);
    peer.conn.give_cookie(cookie(), false);
    peer.send(200);
    next(&mut peer);
    peer.wait_for_deadline();
    let again = next(&mut peer);
    assert_eq!((again.header.flags, again.len, again.header.ack), (SYN_ACK, 0, SeqNumber(IRS) + 301));
    assert_eq!(again.header.options.fast_open, None);
    assert!(peer.poll_raw().is_none());
    peer.ack(0);
    assert_eq!((peer.conn.state(), peer.conn.acked_to()), (State::Established, 0));
    // The data of the first SYN-ACK is still in flight: its timeout brings it again.
    peer.wait_for_deadline();
    while peer.conn.stats().retransmissions < 2 {
        if peer.poll().is_none() {
            peer.wait_for_deadline();
        }
    }
    peer.ack(200);
    assert_eq!((peer.conn.acked_to(), peer.conn.deadline()), (200, None));
}

#[test]
fn the_client_of_an_early_connection_can_reset_it_or_vanish() {
    let mut peer = server(&Config::default(), 300);
    next(&mut peer);
    let header = peer.header(RST, 300, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetAccepted);
    assert_eq!((peer.conn.state(), peer.conn.error()), (State::Closed, Some(Error::Reset)));

    let mut peer = server(&Config::default(), 300);
    next(&mut peer);
    while peer.conn.state() != State::Closed {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
}

#[test]
fn an_owner_that_has_done_with_an_early_connection_ends_it_before_the_handshake_is_over() {
    for (len, acks) in [(0, vec![1]), (100, vec![101]), (0, vec![0, 1]), (100, vec![0, 100, 101])] {
        let mut peer = server(&Config::default(), 300);
        next(&mut peer);
        peer.conn.handle_consumed(peer.now, 300);
        peer.send(len);
        peer.conn.handle_close(peer.now);
        let end = next(&mut peer);
        assert_eq!((end.header.flags & FIN_ACK, u64::from(end.len)), (FIN_ACK, len));
        assert!(peer.poll_raw().is_none());
        for ack in acks {
            assert!(matches!(peer.conn.state(), State::SynReceived | State::FinWait1));
            peer.ack(ack);
        }
        assert_eq!(peer.conn.state(), State::FinWait2);
    }
    // It is lost: the SYN-ACK goes again, and the end follows the handshake.
    let mut peer = server(&Config::default(), 300);
    next(&mut peer);
    peer.conn.handle_consumed(peer.now, 300);
    peer.conn.handle_close(peer.now);
    next(&mut peer);
    peer.wait_for_deadline();
    assert_eq!(next(&mut peer).header.flags, SYN_ACK);
    peer.ack(0);
    assert_eq!(peer.conn.state(), State::FinWait1);
    peer.wait_for_deadline();
    let again = next(&mut peer);
    assert_eq!((again.header.flags, again.len), (FIN_ACK, 0));
    peer.ack(1);
    assert_eq!(peer.conn.state(), State::FinWait2);
}

#[test]
fn an_owner_that_closes_an_early_connection_without_reading_resets_it() {
    let mut peer = server(&Config::default(), 300);
    next(&mut peer);
    peer.conn.handle_close(peer.now);
    let reset = next(&mut peer);
    assert_eq!(reset.header.flags, RST | ACK);
    assert_eq!(reset.header.seq, SeqNumber(ISS) + 1);
}

#[test]
fn a_restart_loses_nothing_at_any_stage_of_the_client() {
    // Before the SYN: it still waits for data, and opens as an ordinary connection.
    let peer = client(with_cookie(), 0);
    let mut again = Peer::around(restarted(&peer));
    assert!(again.conn.awaits_data() && again.poll_raw().is_none());
    again.send(300);
    let syn = next(&mut again);
    assert_eq!((syn.len, syn.header.options.fast_open), (0, None));
    syn_ack(&mut again, 0, None, b"");
    assert_eq!(again.drain(), [(0, 300)]);
    // After it: a SYN-ACK may acknowledge what the SYN carried, or not.
    for taken in [0, 300] {
        let mut peer = client(with_cookie(), 300);
        next(&mut peer);
        let mut again = Peer::around(restarted(&peer));
        let syn = next(&mut again);
        assert_eq!((syn.header.flags, syn.len), (SYN, 0));
        assert!(again.poll_raw().is_none());
        syn_ack(&mut again, taken, None, b"");
        assert_eq!(again.conn.acked_to(), taken as u64);
        assert_eq!(again.drain()[0], (taken, 300 - taken as u32));
    }
}

#[test]
fn a_restart_loses_nothing_at_any_stage_of_the_server() {
    let mut peer = server(&Config { nodelay: true, ..Config::default() }, 300);
    next(&mut peer);
    peer.send(400);
    assert_eq!(peer.drain(), [(0, 400)]);
    let mut again = Peer::around(restarted(&peer));
    again.buffer = CheckedBuffer::new(0);
    again.sent = 300;
    assert!(again.conn.is_early());
    assert_eq!((again.conn.received_to(), again.conn.fast_open()), (300, FastOpenProgress::Taken));
    let answer = next(&mut again);
    assert_eq!((answer.header.flags, answer.len, answer.header.ack), (SYN_ACK, 0, SeqNumber(IRS) + 301));
    again.ack(0);
    assert_eq!(again.conn.state(), State::Established);
    let mut sent = again.drain();
    while !sent.contains(&(0, 400)) {
        again.wait_for_deadline();
        sent.extend(again.drain());
    }
    again.ack(400);
    assert_eq!(again.conn.acked_to(), 400);
}

#[test]
fn a_put_off_acceptance_waits_for_data_then_for_the_last_chance() {
    let config = Config { defer_accept: Duration::from_secs(7), ..Config::default() };
    let options = || Options { mss: Some(1000), ..Options::default() };
    let mut peer = Peer::syn_received(&config, options());
    assert_eq!(peer.ack(0), Verdict::AcceptanceDeferred);
    assert_eq!(peer.conn.state(), State::SynReceived);
    let mut restarted = Peer::around(restarted(&peer));
    for peer in [&mut peer, &mut restarted] {
        let mut waiting = Peer::around(peer.conn.clone());
        waiting.now = peer.now;
        assert_eq!(waiting.more(10), Verdict::Accepted, "data opens it");
        assert_eq!((waiting.conn.state(), waiting.conn.received_to()), (State::Established, 10));
    }
    // Seven seconds are three SYN-ACKs: the first two are left out, since the client is known to be there.
    let mut repeated = Vec::new();
    for _ in 0..3 {
        peer.wait_for_deadline();
        repeated.push(peer.poll().map(|seen| seen.flags));
    }
    assert_eq!(repeated, [None, None, Some(SYN_ACK)]);
    assert_eq!(peer.ack(0), Verdict::Accepted);
    assert_eq!(peer.conn.state(), State::Established);
    // A FIN is something.
    let mut peer = Peer::syn_received(&config, options());
    peer.fin();
    assert_eq!(peer.conn.state(), State::CloseWait);
}

#[test]
fn a_put_off_acceptance_outlasts_fewer_retries() {
    let config = Config { defer_accept: Duration::from_secs(60), syn_retries: 2, ..Config::default() };
    let mut peer = Peer::syn_received(&config, Options { mss: Some(1000), ..Options::default() });
    peer.ack(0);
    let mut timeouts = 0;
    while peer.conn.state() == State::SynReceived {
        peer.wait_for_deadline();
        peer.drain();
        timeouts += 1;
    }
    assert_eq!(timeouts, 7, "sixty seconds are six SYN-ACKs");
}
