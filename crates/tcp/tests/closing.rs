//! Ending a connection, and what is left of it.

#![allow(clippy::unwrap_used, reason = "a broken harness is a failed test")]

mod harness;

use base::{Duration, Instant};
use harness::peer::{ACK, FIN_ACK, Peer, RST, SYN};
use tcp::{Config, Ecn, Error, SegmentIn, State, TimeWait, TimeWaitVerdict};
use wire::tcp::{Flags, Header, Options, Timestamps};

fn established() -> Peer {
    Peer::established(&Config::default())
}

#[test]
fn an_active_close_goes_through_fin_wait_to_time_wait() {
    let mut peer = established();
    peer.conn.handle_shutdown();
    assert_eq!(peer.conn.state(), State::FinWait1);
    assert!(peer.poll().unwrap().flags.contains(Flags::FIN));
    peer.ack(1);
    assert_eq!(peer.conn.state(), State::FinWait2);
    assert_eq!(peer.conn.deadline(), None, "an owner may wait for the peer as long as it likes");
    peer.more(100);
    assert_eq!(peer.conn.received_to(), 100);
    peer.fin();
    assert_eq!(peer.conn.state(), State::TimeWait);
    assert!(peer.conn.time_wait().is_none(), "the acknowledgement has to go out first");
    assert_eq!(peer.poll().unwrap().ack, 101);
    assert!(peer.conn.time_wait().is_some());
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(60));
    assert_eq!((peer.conn.state(), peer.conn.error()), (State::Closed, None));
}

#[test]
fn a_passive_close_ends_in_last_ack() {
    let mut peer = established();
    peer.fin();
    assert_eq!(peer.conn.state(), State::CloseWait);
    peer.send(10);
    peer.conn.handle_shutdown();
    assert_eq!(peer.conn.state(), State::LastAck);
    assert_eq!(peer.drain(), [(0, 10)]);
    peer.ack(11);
    assert_eq!((peer.conn.state(), peer.conn.error()), (State::Closed, None));
    assert_eq!(peer.conn.acked_to(), 10);
    assert_eq!(peer.conn.deadline(), None);
}

/// Both ends have sent a FIN, and none is acknowledged.
fn closing() -> Peer {
    let mut peer = established();
    peer.conn.handle_shutdown();
    peer.drain();
    let header = peer.header(FIN_ACK, 0, 0);
    peer.give(header, &[]);
    assert_eq!(peer.conn.state(), State::Closing);
    peer
}

#[test]
fn both_may_close_at_once() {
    let mut peer = closing();
    peer.drain();
    let header = peer.header(ACK, 1, 1);
    peer.give(header, &[]);
    assert_eq!(peer.conn.state(), State::TimeWait);
}

#[test]
fn a_fin_that_acknowledges_ours_leads_straight_to_time_wait() {
    let mut peer = established();
    peer.conn.handle_shutdown();
    peer.drain();
    let header = peer.header(FIN_ACK, 0, 1);
    peer.give(header, &[]);
    assert_eq!(peer.conn.state(), State::TimeWait);
    assert_eq!(peer.poll().unwrap().ack, 1);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut peer = established();
    peer.send(100);
    peer.conn.handle_shutdown();
    assert_eq!(peer.drain(), [(0, 100)]);
    peer.wait_for_deadline();
    let again = peer.poll().unwrap();
    assert_eq!((again.seq, again.len, again.flags.contains(Flags::FIN)), (0, 100, true));
    peer.ack(100);
    assert_eq!(peer.conn.state(), State::FinWait1);
    peer.wait_for_deadline();
    let again = peer.poll().unwrap();
    assert_eq!((again.seq, again.len, again.flags.contains(Flags::FIN)), (100, 0, true));
}

#[test]
fn fin_wait_2_without_an_owner_ends() {
    let mut peer = established();
    peer.conn.set_linger2(Duration::from_secs(7));
    peer.conn.handle_close(peer.now);
    peer.drain();
    peer.ack(1);
    assert_eq!(peer.conn.state(), State::FinWait2);
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(7));
    assert_eq!(peer.conn.state(), State::Closed);
    // Closed by the owner only later.
    let mut peer = established();
    peer.conn.handle_shutdown();
    peer.drain();
    peer.ack(1);
    peer.conn.handle_close(peer.now);
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(60));
}

#[test]
fn fin_wait_2_without_an_owner_that_wants_none_of_it_is_a_reset() {
    for closed_early in [true, false] {
        let mut peer = established();
        peer.conn.set_linger2(Duration::ZERO);
        if closed_early {
            peer.conn.handle_close(peer.now);
            peer.drain();
            peer.ack(1);
        } else {
            peer.conn.handle_shutdown();
            peer.drain();
            peer.ack(1);
            assert_eq!((peer.conn.state(), peer.poll()), (State::FinWait2, None));
            peer.conn.handle_close(peer.now);
        }
        assert_eq!(peer.conn.state(), State::Closed);
        let reset = peer.poll().unwrap();
        assert_eq!((reset.flags, reset.seq), (RST | ACK, 1));
        assert_eq!(peer.poll(), None);
    }
}

#[test]
fn an_abort_resets_and_frees() {
    let mut peer = established();
    peer.send(5000);
    peer.drain();
    peer.conn.handle_abort();
    assert_eq!(peer.conn.error(), Some(Error::Aborted));
    let reset = peer.poll().unwrap();
    assert_eq!((reset.flags, reset.seq), (RST | ACK, 5000));
    assert_eq!(peer.poll(), None);
    assert_eq!(peer.conn.deadline(), None);
}

#[test]
fn retransmissions_end_after_r2() {
    let mut peer = established();
    peer.send(10);
    peer.drain();
    let start = peer.now;
    let mut sent = 0;
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        sent += peer.drain().iter().filter(|&&(_, len)| len > 0).count();
    }
    assert_eq!(sent, 15);
    assert!(peer.now.saturating_since(start) > Duration::from_secs(100));
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
    assert_eq!(peer.poll(), None, "given up in silence");
}

fn time_wait(timestamps: Option<u32>) -> (Peer, TimeWait) {
    let stamps = timestamps.map(|value| Timestamps { value, echo: 0 });
    let options = Options { mss: Some(1000), timestamps: stamps, ..Options::default() };
    let mut peer = Peer::established_with(&Config::default(), options);
    peer.conn.handle_shutdown();
    peer.drain();
    let header = peer.header(FIN_ACK, 0, 1);
    peer.give(header, &[]);
    peer.sent = 1;
    peer.drain();
    let record = peer.conn.time_wait().unwrap();
    (peer, record)
}

fn give(record: &mut TimeWait, now: Instant, header: Header) -> TimeWaitVerdict {
    let segment = SegmentIn { header, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
    record.handle_segment(now, &segment)
}

#[test]
fn time_wait_is_small_and_answers_a_repeated_fin() {
    assert!(size_of::<TimeWait>() < 64);
    let (peer, mut record) = time_wait(None);
    let deadline = record.deadline();
    let now = peer.now + Duration::from_secs(10);
    let TimeWaitVerdict::Answer(answer) = give(&mut record, now, peer.header(FIN_ACK, 0, 1)) else {
        panic!("no answer")
    };
    assert_eq!(answer.header.ack, peer.header(ACK, 1, 0).seq);
    assert_eq!(record.deadline(), deadline + Duration::from_secs(10), "2 MSL from here");
    // A retransmission is answered every time; what could answer our answer is not.
    assert!(matches!(give(&mut record, now, peer.header(FIN_ACK, 0, 1)), TimeWaitVerdict::Answer(_)));
    assert!(matches!(give(&mut record, now, peer.header(ACK, -5, 1)), TimeWaitVerdict::Drop), "rate");
}

#[test]
fn a_reset_does_not_end_time_wait() {
    let (peer, mut record) = time_wait(None);
    let before = record.clone();
    assert!(matches!(give(&mut record, peer.now, peer.header(RST, 1, 1)), TimeWaitVerdict::Drop));
    assert_eq!(record, before);
}

#[test]
fn an_active_open_may_reuse_the_pair_after_a_second_with_timestamps() {
    let (peer, record) = time_wait(Some(1000));
    assert_eq!(record.reusable(peer.now), None);
    assert!(record.reusable(peer.now + Duration::from_secs(1)).is_some());
    let (peer, record) = time_wait(None);
    assert_eq!(record.reusable(peer.now + Duration::from_secs(30)), None);
}

#[test]
fn a_newer_syn_reopens_and_an_older_does_not() {
    let (peer, mut record) = time_wait(None);
    let old = give(&mut record, peer.now, peer.header(SYN, -500, 0));
    assert!(matches!(old, TimeWaitVerdict::Answer(_)));
    let TimeWaitVerdict::Reopen(isn) = give(&mut record, peer.now, peer.header(SYN, 70_000, 0)) else {
        panic!("not reopened")
    };
    assert!(isn.after(peer.header(ACK, 0, 1).ack + 65_000));
    // With timestamps the newer one decides, whatever the sequence number (RFC 6191).
    let (mut peer, mut record) = time_wait(Some(1000));
    peer.timestamp = Some(1001);
    assert!(matches!(give(&mut record, peer.now, peer.header(SYN, -500, 0)), TimeWaitVerdict::Reopen(_)));
    peer.timestamp = Some(999);
    assert!(matches!(give(&mut record, peer.now, peer.header(SYN, 70_000, 0)), TimeWaitVerdict::Answer(_)));
}

#[test]
fn the_acknowledgement_of_our_fin_is_not_acknowledged() {
    let mut peer = closing();
    assert!(peer.poll().is_some(), "the peer's FIN is");
    let header = peer.header(ACK, 1, 1);
    peer.give(header, &[]);
    assert_eq!((peer.conn.state(), peer.poll()), (State::TimeWait, None));
}

#[test]
fn a_reset_while_both_close_is_told() {
    let mut peer = closing();
    let header = peer.header(RST, 1, 0);
    peer.give(header, &[]);
    assert_eq!((peer.conn.state(), peer.conn.error()), (State::Closed, Some(Error::Reset)));
}
