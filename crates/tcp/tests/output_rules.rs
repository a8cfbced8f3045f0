//! When something is sent and when it is held back: Nagle, silly windows, delayed acknowledgements, probes.

mod harness;

use base::Duration;
use harness::pattern;
use harness::peer::{ACK, Peer};
use tcp::{Config, Error, Keepalive, State};
use wire::tcp::{Flags, Options};

const MS: Duration = Duration::from_millis(1);

fn established() -> Peer {
    Peer::established(&Config::default())
}

/// A peer whose connection has used up its quick acknowledgements.
fn settled() -> Peer {
    let mut peer = established();
    for _ in 0..20 {
        peer.more(1000);
        peer.drain();
    }
    let received = peer.conn.received_to();
    peer.conn.handle_consumed(peer.now, received);
    peer.drain();
    peer.wait(Duration::from_millis(500));
    peer.drain();
    peer
}

#[test]
fn nagle_holds_a_second_small_segment_and_nodelay_does_not() {
    let mut peer = established();
    peer.send(100);
    assert_eq!(peer.drain(), [(0, 100)]);
    peer.send(200);
    assert_eq!(peer.drain(), [], "a small one is in flight");
    peer.send(1300);
    assert_eq!(peer.drain(), [(100, 1000)], "a full one may go");
    peer.ack(100);
    assert_eq!(peer.drain(), [(1100, 200)]);
    peer.send(1301);
    assert_eq!(peer.drain(), []);
    peer.conn.set_nodelay(true);
    assert_eq!(peer.drain(), [(1300, 1)]);
}

#[test]
fn a_fin_takes_the_small_rest_along() {
    let mut peer = established();
    peer.send(10);
    peer.drain();
    peer.send(20);
    assert_eq!(peer.drain(), []);
    peer.conn.handle_shutdown();
    let seen = peer.poll().unwrap();
    assert_eq!((seen.seq, seen.len), (10, 10));
    assert!(seen.flags.contains(Flags::FIN | Flags::PSH));
}

#[test]
fn cork_waits_for_full_segments_but_not_for_ever() {
    let mut peer = established();
    peer.conn.set_cork(true);
    peer.send(1200);
    assert_eq!(peer.drain(), [(0, 1000)]);
    peer.ack(1000);
    assert_eq!(peer.drain(), []);
    assert_eq!(peer.wait_for_deadline(), MS * 200);
    assert_eq!(peer.drain(), [(1000, 200)]);
    peer.send(1300);
    assert_eq!(peer.drain(), []);
    peer.conn.set_cork(false);
    peer.ack(1200);
    assert_eq!(peer.drain(), [(1200, 100)]);
}

#[test]
fn nodelay_lets_go_what_cork_holds_back_once() {
    let mut peer = established();
    peer.conn.set_cork(true);
    peer.send(80);
    assert_eq!(peer.drain(), []);
    peer.conn.set_nodelay(true);
    assert_eq!(peer.drain(), [(0, 80)]);
    peer.ack(80);
    peer.send(120);
    assert_eq!(peer.drain(), [], "still corked");
}

#[test]
fn what_more_follows_waits_for_it_for_an_acknowledgement_or_a_while() {
    let mut peer = established();
    peer.conn.set_nodelay(true);
    peer.drain();
    peer.conn.handle_send_more(100);
    assert_eq!(peer.drain(), []);
    peer.conn.handle_send_more(300);
    assert_eq!(peer.drain(), []);
    peer.send(305);
    assert_eq!(peer.drain(), [(0, 305)], "the last send of a message");
    peer.ack(305);
    peer.conn.handle_send_more(1405);
    assert_eq!(peer.drain(), [(305, 1000)], "what fills a segment goes");
    peer.ack(1305);
    assert_eq!(peer.drain(), [(1305, 100)], "an acknowledgement lets the rest go");
    peer.ack(1405);
    peer.conn.handle_send_more(1425);
    assert_eq!(peer.drain(), []);
    assert_eq!(peer.wait_for_deadline(), MS * 200);
    assert_eq!(peer.drain(), [(1405, 20)], "the rest never came");
    peer.ack(1425);
    peer.conn.handle_send_more(1445);
    assert_eq!(peer.drain(), []);
    peer.conn.set_nodelay(true);
    assert_eq!(peer.drain(), [(1425, 20)]);
}

#[test]
fn push_marks_the_last_of_what_is_queued() {
    let mut peer = established();
    peer.send(1500);
    assert!(!peer.poll().unwrap().flags.contains(Flags::PSH));
    assert!(peer.poll().unwrap().flags.contains(Flags::PSH));
}

#[test]
fn super_segments_are_whole_multiples_while_more_follows() {
    let mut peer = established();
    peer.max_payload = 4500;
    peer.send(7300);
    assert_eq!(peer.drain(), [(0, 4000), (4000, 3300)]);
    assert_eq!(peer.conn.stats().segments_out, 2 + 4 + 4);
}

#[test]
fn the_sender_does_not_answer_a_silly_window_with_silly_segments() {
    let mut peer = established();
    peer.window = 3000;
    peer.ack(0);
    peer.send(20_000);
    assert_eq!(peer.drain().len(), 3);
    peer.ack(3000);
    peer.drain();
    // 400 of at most 60,000 bytes: wait.
    peer.window = 400;
    peer.ack(6000);
    assert_eq!(peer.drain(), []);
    assert_eq!(peer.wait_for_deadline(), MS * 200, "RFC 1122 §4.2.3.4: the override");
    assert_eq!(peer.drain(), [(6000, 400)]);
}

#[test]
fn the_receiver_opens_its_window_in_large_steps() {
    let mut peer =
        Peer::established(&Config { initial_window: 4000, window_limit: 4000, ..Config::default() });
    peer.more(2000);
    peer.more(2000);
    assert_eq!(peer.poll().unwrap().window, 0);
    for read in [300, 600, 900] {
        peer.conn.handle_consumed(peer.now, read);
        assert_eq!(peer.poll(), None, "{read}");
    }
    assert!(peer.conn.consume_notify_at() <= 2000);
    peer.conn.handle_consumed(peer.now, 2000);
    let update = peer.poll().unwrap();
    assert_eq!((update.window, update.ack), (2000, 4000));
}

#[test]
fn every_second_full_segment_is_acknowledged_and_one_after_40_ms() {
    let mut peer = settled();
    let start = peer.sent;
    peer.more(1000);
    assert_eq!(peer.poll(), None);
    peer.more(1000);
    assert_eq!(peer.poll().unwrap().ack, start as i64 + 2000);
    peer.more(1000);
    assert_eq!(peer.wait_for_deadline(), MS * 40);
    assert_eq!(peer.poll().unwrap().ack, start as i64 + 3000);
}

#[test]
fn a_super_segment_counts_as_what_it_was_on_the_wire() {
    let mut peer = settled();
    let from = peer.sent;
    let payload: Vec<u8> = (0..2000).map(|i| pattern(0, from + i)).collect();
    let header = peer.header(ACK, from as i64, 0);
    peer.give_counted(header, &payload, 2);
    assert_eq!(peer.poll().unwrap().ack, from as i64 + 2000);
}

#[test]
fn a_batch_is_acknowledged_once() {
    let mut peer = settled();
    for _ in 0..10 {
        peer.more(1000);
    }
    assert_eq!(peer.drain().len(), 1);
}

#[test]
fn the_first_acknowledgements_are_quick_and_quickack_makes_them_so() {
    let mut peer = established();
    peer.more(100);
    assert!(peer.poll().is_some());
    let mut peer = settled();
    peer.more(100);
    assert_eq!(peer.poll(), None);
    peer.conn.set_quickack(true);
    assert!(peer.poll().is_some());
    peer.more(100);
    assert!(peer.poll().is_some());
}

#[test]
fn data_carries_the_acknowledgement() {
    let mut peer = settled();
    peer.more(100);
    let received = peer.sent as i64;
    peer.send(50);
    let seen = peer.poll().unwrap();
    assert_eq!((seen.len, seen.ack), (50, received));
    assert_eq!(peer.poll(), None);
}

#[test]
fn a_closed_window_is_probed_ever_more_seldom_and_for_ever_while_answered() {
    let mut peer = established();
    peer.send(10_000);
    peer.drain();
    peer.window = 0;
    peer.send(50_000);
    peer.ack(10_000);
    assert_eq!(peer.drain(), []);
    let mut waits = Vec::new();
    for _ in 0..40 {
        waits.push(peer.wait_for_deadline().as_millis());
        let probe = peer.poll().unwrap();
        assert_eq!((probe.seq, probe.len), (9_999, 0));
        let header = peer.header(ACK, 0, 10_000);
        peer.give(header, &[]);
    }
    for pair in waits.windows(2) {
        assert!(pair[1] >= 2 * pair[0] - 1 || pair[1] == 120_000, "the answers do not hasten it: {waits:?}");
    }
    assert_eq!(peer.conn.state(), State::Established);
    peer.window = 5000;
    peer.ack(10_000);
    assert_eq!(peer.drain()[0], (10_000, 1000));
}

#[test]
fn an_unanswered_probe_ends_in_a_timeout() {
    let mut peer = established();
    peer.window = 0;
    peer.ack(0);
    peer.send(50_000);
    peer.drain();
    let mut probes = 0;
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        probes += peer.drain().iter().filter(|&&(seq, _)| seq < 0).count();
    }
    assert_eq!(probes, 15);
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
}

#[test]
fn keepalive_probes_and_gives_up() {
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), count: 3 };
    let mut peer = Peer::established(&Config { keepalive: Some(keepalive), ..Config::default() });
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(10));
    let probe = peer.poll().unwrap();
    assert_eq!((probe.seq, probe.len, probe.flags), (-1, 0, ACK));
    peer.ack(0);
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(2));
    assert_eq!(peer.poll(), None, "it answered: the idle time runs anew");
    assert_eq!(peer.wait_for_deadline(), Duration::from_secs(8));
    let mut probes = 0;
    loop {
        match peer.poll() {
            Some(seen) if !seen.flags.contains(Flags::RST) => probes += 1,
            _ => break,
        }
        peer.wait_for_deadline();
    }
    assert_eq!(probes, 3);
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
}

#[test]
fn keepalive_and_persist_and_retransmission_do_not_exclude_each_other() {
    let keepalive = Keepalive { idle: Duration::from_secs(1), interval: Duration::from_secs(1), count: 2 };
    let mut peer = Peer::established(&Config { keepalive: Some(keepalive), ..Config::default() });
    peer.window = 0;
    peer.ack(0);
    peer.send(100);
    peer.drain();
    let (mut probes, mut span) = (0, Duration::ZERO);
    while span < Duration::from_secs(60) {
        span += peer.wait_for_deadline();
        probes += peer.drain().len();
        peer.ack(0);
        peer.drain();
    }
    assert!(probes >= 5, "after 1, 2, 4, 8, 16 and 32 seconds: {probes}");
    assert_eq!(peer.conn.state(), State::Established);
}

#[test]
fn the_user_timeout_ends_what_is_not_acknowledged() {
    let mut peer =
        Peer::established(&Config { user_timeout: Some(Duration::from_secs(3)), ..Config::default() });
    let start = peer.now;
    peer.send(100);
    peer.drain();
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.now.saturating_since(start), Duration::from_secs(3));
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
}

/// Linux (`retransmits_timed_out`): a user timeout is instead of the count of retransmissions, which would end this much earlier.
#[test]
fn a_long_user_timeout_outlasts_the_retransmissions() {
    let config = Config { retries: 3, user_timeout: Some(Duration::from_secs(3000)), ..Config::default() };
    let mut peer = Peer::established(&config);
    let start = peer.now;
    peer.send(100);
    while peer.conn.state() == State::Established {
        peer.drain();
        peer.wait_for_deadline();
    }
    assert_eq!(peer.now.saturating_since(start), Duration::from_secs(3000));
}

/// Linux (`tcp_probe_timer`): the time runs from when the window held data back, whether probes are answered or not.
#[test]
fn the_user_timeout_ends_a_closed_window_too() {
    let config = Config { user_timeout: Some(Duration::from_secs(30)), ..Config::default() };
    let mut peer = Peer::established(&config);
    peer.window = 0;
    peer.ack(0);
    // An hour without anything to send does not count.
    peer.now += Duration::from_secs(3600);
    let start = peer.now;
    peer.send(100);
    peer.drain();
    let mut probes = 0;
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        probes += peer.drain().len();
        if peer.conn.state() == State::Established {
            peer.ack(0);
            peer.drain();
        }
    }
    assert!(probes >= 5, "{probes}");
    assert_eq!(peer.now.saturating_since(start), Duration::from_secs(30));
    assert_eq!(peer.conn.error(), Some(Error::TimedOut));
    // A window that opens in time starts the count anew.
    let mut peer = Peer::established(&config);
    peer.window = 0;
    peer.ack(0);
    peer.send(100);
    peer.drain();
    peer.wait(Duration::from_secs(29));
    peer.window = 50;
    peer.ack(0);
    while !peer.drain().contains(&(0, 50)) {
        peer.wait_for_deadline();
    }
    peer.window = 0;
    peer.ack(50);
    peer.drain();
    let opened = peer.now;
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert!(peer.now.saturating_since(opened) >= Duration::from_secs(29));
}

#[test]
fn the_user_timeout_takes_the_place_of_the_keepalive_count() {
    let keepalive =
        tcp::Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), count: 2 };
    let config = Config {
        keepalive: Some(keepalive),
        user_timeout: Some(Duration::from_secs(31)),
        ..Config::default()
    };
    let mut peer = Peer::established(&config);
    let start = peer.now;
    while peer.conn.state() == State::Established {
        peer.wait_for_deadline();
        peer.drain();
    }
    assert_eq!(peer.now.saturating_since(start), Duration::from_secs(35), "at the probe after it");
}

#[test]
fn the_window_shrinks_after_an_idle_time() {
    let mut peer = established();
    let mut acked = 0;
    for _ in 0..3 {
        peer.send(acked + 40_000);
        while let Some(seen) = peer.poll() {
            acked = seen.seq as u64 + u64::from(seen.len);
        }
        peer.wait(MS * 10);
        peer.ack(acked);
    }
    let grown = peer.conn.congestion_window();
    assert!(grown > 20_000);
    peer.now += Duration::from_secs(60);
    peer.send(acked + 100_000);
    assert_eq!(peer.drain().len(), 10, "from {grown} back to the initial window");
}

#[test]
fn the_scaled_window_tells_the_buffer() {
    let options = Options { mss: Some(1000), window_scale: Some(3), ..Options::default() };
    let config = Config { initial_window: 600_000, window_limit: 600_000, ..Config::default() };
    let mut peer = Peer::established_with(&config, options);
    let scale = peer.conn.info().receive_scale.unwrap();
    assert_eq!(scale, 4);
    peer.more(16);
    assert_eq!(u32::from(peer.poll().unwrap().window) << scale, 600_000 - 16);
    peer.window = 1000;
    peer.ack(0);
    assert_eq!(peer.conn.info().send_window, 8000);
}
