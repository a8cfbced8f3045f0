//! What is done with a segment that is not simply the next one: RFC 9293 §3.10.7.4, RFC 5961, RFC 7323.

mod harness;

use base::Duration;
use harness::pattern;
use harness::peer::{ACK, FIN_ACK, Peer, RST, SYN};
use tcp::{Config, Error, State, Verdict};
use wire::tcp::{Flags, Options, Timestamps};

fn established() -> Peer {
    Peer::established(&Config::default())
}

fn with_timestamps() -> Peer {
    let stamps = Some(Timestamps { value: 1000, echo: 0 });
    Peer::established_with(
        &Config::default(),
        Options { mss: Some(1000), timestamps: stamps, ..Options::default() },
    )
}

#[test]
fn a_reset_must_hit_the_left_edge_exactly() {
    let mut peer = established();
    let header = peer.header(RST, 1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetChallenged);
    assert_eq!(peer.poll().unwrap().flags, ACK);
    let header = peer.header(RST, -1, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetIgnored);
    let header = peer.header(RST, 2_000_000, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetIgnored);
    assert_eq!(peer.poll(), None);
    let header = peer.header(RST, 0, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetAccepted);
    assert_eq!(peer.conn.error(), Some(Error::Reset));
}

#[test]
fn a_syn_is_challenged_wherever_it_lies_and_the_answers_are_limited() {
    let mut peer = established();
    let mut answers = 0;
    for offset in 0..40 {
        let header = peer.header(SYN, offset * 1_000_000, 0);
        assert_eq!(peer.give(header, &[]), Verdict::SynChallenged);
        answers += peer.drain().len();
    }
    assert_eq!(answers, 10);
    assert_eq!(peer.conn.state(), State::Established);
    assert_eq!(peer.conn.stats().challenges, 10);
    peer.wait(Duration::from_secs(5));
    let header = peer.header(SYN, 0, 0);
    peer.give(header, &[]);
    assert_eq!(peer.drain().len(), 1);
}

#[test]
fn acknowledgements_out_of_range_are_challenged_and_their_data_not_taken() {
    let mut peer = established();
    peer.send(1000);
    peer.drain();
    let header = peer.header(ACK, 0, 1001);
    assert_eq!(peer.give(header, &[pattern(0, 0)]), Verdict::AckTooNew);
    let header = peer.header(ACK, 0, -200_000);
    assert_eq!(peer.give(header, &[pattern(0, 0)]), Verdict::AckTooOld);
    assert_eq!(peer.conn.received_to(), 0);
    assert_eq!(peer.drain(), [(1000, 0)]);
    let header = peer.header(Flags::empty(), 0, 0);
    assert_eq!(peer.give(header, &[pattern(0, 0)]), Verdict::NoAck);
    // An old acknowledgement within the window does not spoil its data.
    peer.ack(1000);
    let header = peer.header(ACK, 0, 500);
    assert_eq!(peer.give(header, &[pattern(0, 0)]), Verdict::Accepted);
    assert_eq!(peer.conn.received_to(), 1);
}

#[test]
fn old_timestamps_are_refused_but_not_in_resets_nor_after_24_days() {
    let mut peer = with_timestamps();
    peer.timestamp = Some(2000);
    peer.more(100);
    peer.drain();
    peer.timestamp = Some(1999);
    assert_eq!(peer.data(100, 100), Verdict::PawsRejected);
    assert_eq!(peer.poll().unwrap().ack, 100, "and acknowledged");
    assert_eq!(peer.conn.received_to(), 100);
    peer.now += Duration::from_secs(25 * 24 * 3600);
    assert_eq!(peer.data(100, 100), Verdict::Accepted, "an idle time that long makes TS.Recent worthless");
    peer.timestamp = Some(3);
    let header = peer.header(RST, 200, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetAccepted);
}

#[test]
fn only_a_segment_that_covers_the_last_acknowledgement_brings_the_echo() {
    let mut peer = with_timestamps();
    peer.timestamp = Some(1100);
    peer.data(1000, 500); // beyond a gap: not echoed (RFC 7323 §4.3)
    let echo = |peer: &mut Peer| peer.poll_raw().unwrap().header.options.timestamps.unwrap().echo;
    assert_eq!(echo(&mut peer), 1000);
    peer.timestamp = Some(1200);
    peer.data(0, 1000);
    assert_eq!(echo(&mut peer), 1200);
    assert_eq!(peer.conn.received_to(), 1500);
}

#[test]
fn overlaps_are_trimmed_on_both_ends() {
    let mut peer =
        Peer::established(&Config { initial_window: 2000, window_limit: 2000, ..Config::default() });
    peer.more(500);
    assert_eq!(peer.data(200, 600), Verdict::Trimmed);
    assert_eq!(peer.conn.received_to(), 800);
    assert_eq!(peer.data(0, 300), Verdict::Duplicate);
    peer.data(700, 5000);
    assert_eq!(peer.conn.received_to(), 2000, "what lies beyond the window is cut off");
    assert_eq!(peer.data(2500, 10), Verdict::BeyondWindow);
}

#[test]
fn a_closed_window_takes_acknowledgements_but_no_data() {
    let mut peer =
        Peer::established(&Config { initial_window: 2000, window_limit: 2000, ..Config::default() });
    peer.send(700);
    peer.drain();
    peer.data(0, 2000);
    assert_eq!(peer.poll().unwrap().window, 0);
    let header = peer.header(ACK, 2000, 700);
    let verdict = peer.give(header, &[pattern(0, 2000)]);
    assert_eq!(verdict, Verdict::Duplicate);
    assert_eq!(peer.conn.acked_to(), 700);
    assert_eq!(peer.conn.received_to(), 2000);
    assert_eq!(peer.poll().unwrap().ack, 2000, "a probe is answered");
    let header = peer.header(RST, 2000, 0);
    assert_eq!(peer.give(header, &[]), Verdict::ResetAccepted);
}

#[test]
fn ranges_out_of_order_are_joined_and_acknowledged_at_once() {
    let mut peer = established();
    assert_eq!(peer.data(1000, 1000), Verdict::OutOfOrder);
    assert_eq!(peer.poll().unwrap().ack, 0);
    assert_eq!(peer.data(3000, 1000), Verdict::OutOfOrder);
    assert_eq!(peer.poll().unwrap().ack, 0);
    assert_eq!(peer.data(1200, 100), Verdict::Duplicate);
    assert_eq!(peer.poll().unwrap().ack, 0);
    assert_eq!(peer.data(0, 1000), Verdict::Accepted);
    assert_eq!(peer.poll().unwrap().ack, 2000);
    assert_eq!(peer.data(1500, 2000), Verdict::Trimmed);
    assert_eq!(peer.poll().unwrap().ack, 4000);
}

#[test]
fn a_fin_beyond_a_gap_waits_for_the_gap() {
    let mut peer = established();
    let header = peer.header(FIN_ACK, 1000, 0);
    peer.give(header, &[pattern(0, 1000)]);
    assert_eq!(peer.conn.state(), State::Established);
    assert!(!peer.conn.is_peer_closed());
    peer.drain();
    peer.data(0, 1000);
    assert_eq!(peer.conn.state(), State::CloseWait);
    assert!(peer.conn.is_peer_closed());
    assert_eq!(peer.conn.received_to(), 1001);
    assert_eq!(peer.poll().unwrap().ack, 1002);
    // Data beyond the end, and another end, are not believed.
    let header = peer.header(FIN_ACK, 1002, 0);
    peer.give(header, &[1, 2, 3]);
    assert_eq!(peer.conn.received_to(), 1001);
}

#[test]
fn data_beyond_a_known_end_is_cut_off() {
    let mut peer = established();
    let header = peer.header(FIN_ACK, 500, 0);
    peer.give(header, &[]);
    peer.data(0, 600);
    assert_eq!(peer.conn.received_to(), 500);
    assert_eq!(peer.conn.state(), State::CloseWait);
}

#[test]
fn no_memory_means_not_received() {
    let mut peer = established();
    peer.buffer.full = true;
    assert_eq!(peer.more(100), Verdict::NoMemory);
    assert_eq!(peer.data(500, 100), Verdict::NoMemory);
    assert_eq!(peer.conn.received_to(), 0);
    peer.buffer.full = false;
    peer.data(0, 100);
    assert_eq!(peer.conn.received_to(), 100);
}

#[test]
fn too_many_ranges_are_not_kept() {
    let mut peer = established();
    let full = (1..=200).filter(|i| peer.data(i * 20, 10) == Verdict::ReassemblyFull).count();
    assert_eq!(full, 200 - 128);
}

#[test]
fn data_after_the_owner_closed_resets() {
    let mut peer = established();
    peer.conn.handle_close(peer.now);
    peer.drain();
    let verdict = peer.more(10);
    assert_eq!(verdict, Verdict::DataAfterClose);
    // The caller answers with a reset where the peer says that it is, which the peer believes (RFC 5961 §3).
    assert!(verdict.wants_reset());
    assert_eq!(peer.poll(), None);
    assert_eq!(peer.conn.state(), State::Closed);
}

#[test]
fn closing_with_unread_data_resets() {
    let mut peer = established();
    peer.more(10);
    peer.conn.handle_close(peer.now);
    assert!(peer.poll().unwrap().flags.contains(RST));
    let mut peer = established();
    peer.more(10);
    peer.conn.handle_consumed(peer.now, 10);
    peer.conn.handle_close(peer.now);
    assert!(peer.poll().unwrap().flags.contains(Flags::FIN));
}

/// With SACK; the first 100 bytes are here.
fn established_with_sack() -> Peer {
    let options = Options { mss: Some(1000), sack_permitted: true, ..Options::default() };
    let mut peer = Peer::established_with(&Config::default(), options);
    peer.data(0, 100);
    peer.drain();
    peer
}

#[test]
fn partial_duplicates_are_reported() {
    // RFC 2883 §4.1: before the window, behind it, and both.
    let mut peer = established_with_sack();
    peer.conn.set_quickack(true);
    peer.drain();
    peer.data(90, 30);
    assert_eq!(peer.poll().unwrap().sack, [(90, 100)]);
    peer.data(150, 20);
    peer.drain();
    peer.data(140, 20);
    assert_eq!(peer.poll().unwrap().sack, [(150, 160), (140, 170)]);
    peer.data(120, 25);
    assert_eq!(peer.poll().unwrap().sack, [(140, 145)]);
}

#[test]
fn an_acknowledgement_older_than_the_connection_is_challenged() {
    let mut peer = established();
    let header = peer.header(ACK, 0, -1);
    assert_eq!(peer.give(header, b"forged"), Verdict::AckTooOld);
    assert_eq!(peer.conn.received_to(), 0);
}

#[test]
fn a_segment_that_is_not_believed_leaves_no_timestamp() {
    let stamps = Timestamps { value: 100, echo: 0 };
    let options = Options { mss: Some(1000), timestamps: Some(stamps), ..Options::default() };
    let mut peer = Peer::established_with(&Config::default(), options);
    let mut header = peer.header(ACK, 0, 5000);
    header.options.timestamps = Some(Timestamps { value: 200, echo: 0 });
    assert_eq!(peer.give(header, &[]), Verdict::AckTooNew);
    assert_eq!(peer.poll_raw().unwrap().header.options.timestamps.unwrap().echo, 100);
}
