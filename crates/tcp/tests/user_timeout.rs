//! The user timeout's option (RFC 5482): what a SYN tells, and who heeds it. (What the timeout does is in `output_rules.rs`.)
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod harness;

use base::{Duration, Instant, SeqNumber};
use harness::world::addresses;
use tcp::{Config, Connection, Ecn, OutputLimit, SegmentIn};
use wire::tcp::Header;

fn now() -> Instant {
    Instant::from_millis(1_000_000)
}

fn with(seconds: Option<u64>, option: bool) -> Config {
    let user_timeout = seconds.map(Duration::from_secs);
    Config { user_timeout, user_timeout_option: option, ..Config::default() }
}

fn poll(connection: &mut Connection) -> Header {
    connection.poll_segment(now(), &OutputLimit { max_payload: 0 }).unwrap().header
}

fn segment(header: Header) -> SegmentIn<'static> {
    SegmentIn { header, payload: &[], arrival: now(), segment_count: 1, ecn: Ecn::NotEct }
}

/// What both SYNs tell, and what both ends have then, in seconds.
fn open(client: &Config, server: &Config) -> ([Option<u16>; 2], [Option<u64>; 2]) {
    let [near, far] = addresses();
    let mut opened = Connection::connect(now(), client, near, far, SeqNumber(5), 0);
    let syn = poll(&mut opened);
    let mut accepted = Connection::accept(now(), server, far, near, SeqNumber(9), 0, &segment(syn.clone()));
    let answer = poll(&mut accepted);
    opened.handle_segment(now(), &segment(answer.clone()), &mut harness::CheckedBuffer::new(1));
    let seconds =
        |connection: &Connection| connection.user_timeout().map(|timeout| timeout.as_millis() / 1000);
    ([syn.options.user_timeout, answer.options.user_timeout], [seconds(&opened), seconds(&accepted)])
}

#[test]
fn the_peers_timeout_is_taken_where_none_was_chosen() {
    assert_eq!(open(&with(Some(1800), true), &with(None, true)), ([Some(1800), None], [Some(1800); 2]));
    assert_eq!(open(&with(None, true), &with(Some(1800), true)), ([None, Some(1800)], [Some(1800); 2]));
    let own = open(&with(Some(1800), true), &with(Some(200), true));
    assert_eq!(own, ([Some(1800), Some(200)], [Some(1800), Some(200)]), "who has chosen keeps it");
}

#[test]
fn without_the_option_nothing_is_told_or_heeded() {
    assert_eq!(open(&with(Some(1800), false), &with(None, true)), ([None; 2], [Some(1800), None]));
    assert_eq!(open(&with(Some(1800), true), &with(None, false)), ([Some(1800), None], [Some(1800), None]));
}

#[test]
fn a_peer_cannot_ask_for_too_little_or_too_much() {
    assert_eq!(open(&with(Some(3), true), &with(None, true)), ([Some(3), None], [Some(3), Some(100)]));
    let week = 7 * 24 * 3600;
    let minutes = 0x8000 | (week / 60) as u16;
    assert_eq!(
        open(&with(Some(week), true), &with(None, true)),
        ([Some(minutes), None], [Some(week), Some(3600)])
    );
}
