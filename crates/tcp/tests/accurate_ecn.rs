//! Accurate feedback of congestion marks (RFC 9768).
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod harness;

use base::{Duration, Instant, SeqNumber};
use harness::peer::{ACK, IRS, ISS, Peer, SYN, SYN_ACK, blank};
use harness::world::{Path, World, addresses};
use tcp::{AccurateEcn, Config, Connection, Ecn, OutputLimit, SegmentIn, State};
use wire::tcp::{Flags, Options};

const ACE: Flags = Flags::AE.union(Flags::CWR).union(Flags::ECE);
const MS: Duration = Duration::from_millis(1);

fn config() -> Config {
    Config { ecn: true, accurate_ecn: AccurateEcn::Offer, nodelay: true, ..Config::default() }
}

fn field(number: u8) -> Flags {
    let bit = |bit: u8, flag| if number & bit != 0 { flag } else { Flags::empty() };
    bit(4, Flags::AE) | bit(2, Flags::CWR) | bit(1, Flags::ECE)
}

fn number(flags: Flags) -> u8 {
    (0..8).find(|&number| field(number) == flags.intersection(ACE)).unwrap()
}

/// The flags with which a server with this configuration answers a SYN with these bits, which came as `ecn`.
fn answer(config: &Config, bits: Flags, ecn: Ecn) -> Flags {
    let now = Instant::from_millis(5000);
    let [local, remote] = addresses();
    let mut header = blank(SYN | bits);
    header.window = 60_000;
    let syn = SegmentIn { header, payload: &[], arrival: now, segment_count: 1, ecn };
    let mut server = Connection::accept(now, config, local, remote, SeqNumber(1), 7, &syn);
    let segment = server.poll_segment(now, &OutputLimit { max_payload: 0 }).unwrap();
    assert_eq!(segment.ecn, Ecn::NotEct);
    segment.header.flags.intersection(ACE)
}

/// RFC 9768 §3.1.2 table 2 from the server's side.
#[test]
fn a_server_answers_what_it_was_asked_and_how_it_arrived() {
    let accept = Config::default();
    for config in [&config(), &accept] {
        for (ecn, expected) in
            [(Ecn::NotEct, 0b010), (Ecn::Ect1, 0b011), (Ecn::Ect0, 0b100), (Ecn::Ce, 0b110)]
        {
            assert_eq!(number(answer(config, field(0b111), ecn)), expected, "{ecn:?}");
        }
        assert_eq!(answer(config, Flags::ECE | Flags::CWR, Ecn::NotEct), Flags::ECE, "classic");
        assert_eq!(answer(config, Flags::empty(), Ecn::NotEct), Flags::empty());
        // §3.1.3: combinations of the future are taken for a request.
        for bits in [0b001, 0b010, 0b100, 0b101, 0b110] {
            assert_eq!(number(answer(config, field(bits), Ecn::NotEct)), 0b010, "{bits:03b}");
        }
    }
    let classic = Config { accurate_ecn: AccurateEcn::Off, ..config() };
    assert_eq!(answer(&classic, field(0b111), Ecn::NotEct), Flags::ECE, "the fall-back of RFC 3168");
    assert_eq!(answer(&classic, field(0b110), Ecn::NotEct), Flags::empty());
    let never = Config { ecn: false, accept_ecn: false, ..config() };
    assert_eq!(answer(&never, field(0b111), Ecn::NotEct), Flags::empty());
}

/// A client that offered accurate feedback; the SYN-ACK has these bits and came as `ecn`.
fn client(bits: u8, ecn: Ecn) -> Peer {
    let now = Instant::from_millis(100_000);
    let [local, remote] = addresses();
    let mut conn = Connection::connect(now, &config(), local, remote, SeqNumber(ISS), 7);
    let syn = conn.poll_segment(now, &OutputLimit { max_payload: 0 }).unwrap();
    assert_eq!(syn.header.flags, SYN | ACE);
    let mut peer = Peer::syn_sent(&Config { accurate_ecn: AccurateEcn::Accept, ..config() });
    peer.conn = conn;
    peer.now += MS * 20;
    let mut header = peer.header(SYN_ACK | field(bits), -1, 0);
    header.seq = SeqNumber(IRS);
    header.options = Options { mss: Some(1000), ..Options::default() };
    peer.ecn = ecn;
    peer.give(header, &[]);
    peer.ecn = Ecn::NotEct;
    assert_eq!(peer.conn.state(), State::Established);
    peer
}

#[test]
fn a_client_takes_what_the_server_can() {
    for (bits, ecn, accurate) in [
        (0b000, false, false),
        (0b001, true, false),
        (0b010, true, true),
        (0b011, true, true),
        (0b100, true, true),
        (0b101, true, false),
        (0b110, true, true),
        (0b111, false, false),
    ] {
        let info = client(bits, Ecn::NotEct).conn.info();
        assert_eq!((info.ecn, info.accurate_ecn), (ecn, accurate), "{bits:03b}");
    }
}

#[test]
fn the_first_acknowledgement_tells_how_the_syn_ack_came_and_goes_alone() {
    for (ecn, first, then) in
        [(Ecn::NotEct, 0b010, 5), (Ecn::Ect1, 0b011, 5), (Ecn::Ect0, 0b100, 5), (Ecn::Ce, 0b110, 6)]
    {
        let mut peer = client(0b010, ecn);
        peer.max_payload = 60_000;
        peer.send(20_000);
        let ack = peer.poll_raw().unwrap().header.flags;
        assert_eq!((number(ack), ack.difference(ACE)), (first, ACK), "{ecn:?}: no data");
        let data = peer.poll_raw().unwrap();
        assert_eq!((number(data.header.flags), data.len > 0), (then, true), "{ecn:?}");
        assert_eq!(data.ecn, Ecn::Ect0);
    }
}

/// A client with accurate feedback, its first acknowledgement taken out.
fn established() -> Peer {
    let mut peer = client(0b010, Ecn::NotEct);
    assert_eq!(number(peer.poll_raw().unwrap().header.flags), 0b010);
    peer
}

#[test]
fn marks_are_counted_and_told_at_once() {
    let mut peer = established();
    // Use up the acknowledgements that are sent at once anyway.
    for _ in 0..16 {
        peer.more(1000);
        peer.drain();
    }
    peer.more(500);
    assert!(peer.poll_raw().is_none(), "an acknowledgement of unmarked data waits");
    peer.ecn = Ecn::Ce;
    peer.more(500);
    assert_eq!(number(peer.poll_raw().unwrap().header.flags), 6, "the first mark is told at once");
    peer.more(400);
    assert!(peer.poll_raw().is_none());
    peer.more(400);
    assert_eq!(number(peer.poll_raw().unwrap().header.flags), 8 & 7, "then every second");
    let header = peer.header(ACK | field(5), peer.sent as i64, 0);
    peer.give_counted(header, &[harness::pattern(0, peer.sent)], 10);
    assert_eq!(number(peer.poll_raw().unwrap().header.flags), 18 & 7);
    assert_eq!(peer.conn.stats().congestion_marks, 13);
    assert!(peer.conn.info().accurate_ecn);
}

#[test]
fn what_the_peer_tells_reduces_once_for_a_window() {
    let mut peer = established();
    peer.send(60_000);
    peer.drain();
    let before = peer.conn.congestion_window();
    let give = |peer: &mut Peer, ack: u64, told: u8| {
        let header = peer.header(ACK | field(told & 7), 0, ack as i64);
        peer.give(header, &[])
    };
    assert_eq!(give(&mut peer, 1000, 5), tcp::Verdict::Predicted, "nothing new takes the short way");
    assert!(peer.conn.congestion_window() >= before, "nothing is told");
    let before = peer.conn.congestion_window();
    give(&mut peer, 2000, 7);
    let reduced = peer.conn.congestion_window();
    assert!(reduced < before && reduced >= before / 2, "{before} {reduced}");
    give(&mut peer, 4000, 10);
    give(&mut peer, 6000, 12);
    assert!((reduced..before).contains(&peer.conn.congestion_window()), "once for a window");
    let stats = peer.conn.stats();
    assert_eq!((stats.congestion_echoes, stats.marks_told, stats.retransmissions), (1, 7, 0));
    // An old acknowledgement, overtaken on its way, tells nothing.
    give(&mut peer, 6000, 9);
    assert_eq!(peer.conn.stats().marks_told, 7);
    peer.drain();
    let data = peer.conn.sent_to();
    assert!(data > 10_000);
    give(&mut peer, data, 12);
    peer.wait(MS * 20);
    peer.drain();
    let end = peer.conn.sent_to();
    assert!(end > data);
    give(&mut peer, end, 13);
    assert_eq!(peer.conn.stats().congestion_echoes, 2, "another window, another reduction");
}

/// RFC 9768 §3.1.4.1 and §3.2.3.2.2: a repeated SYN or SYN-ACK asks for accurate feedback once more, then for none.
#[test]
fn a_repeated_syn_asks_once_more_and_then_no_more() {
    let again = |peer: &mut Peer| {
        peer.wait_for_deadline();
        peer.poll_raw().unwrap().header.flags
    };
    let now = Instant::from_millis(100_000);
    let [local, remote] = addresses();
    let mut client = Peer::around(Connection::connect(now, &config(), local, remote, SeqNumber(ISS), 7));
    assert_eq!(client.poll_raw().unwrap().header.flags, SYN | ACE);
    assert_eq!([again(&mut client), again(&mut client), again(&mut client)], [SYN | ACE, SYN, SYN]);

    let mut header = blank(SYN | ACE);
    header.seq = SeqNumber(IRS);
    header.window = 60_000;
    let syn = SegmentIn { header, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
    let mut server = Peer::around(Connection::accept(now, &config(), local, remote, SeqNumber(ISS), 7, &syn));
    let first = server.poll_raw().unwrap().header.flags;
    assert_eq!([first, again(&mut server)], [SYN_ACK | field(0b010); 2]);
    assert_eq!([again(&mut server), again(&mut server)], [SYN_ACK; 2]);
    // The client had the first one after all: its feedback is heard, but the path is not believed to carry marks.
    let header = server.header(ACK | field(0b010), 0, 0);
    server.give(header, &[]);
    server.send(1000);
    let data = server.poll_raw().unwrap();
    assert_eq!((data.ecn, number(data.header.flags)), (Ecn::NotEct, 5));
}

#[test]
fn a_cleared_field_is_not_trusted() {
    let now = Instant::from_millis(100_000);
    let [local, remote] = addresses();
    let mut header = blank(SYN | ACE);
    header.seq = SeqNumber(IRS);
    header.window = 60_000;
    let syn = SegmentIn { header, payload: &[], arrival: now, segment_count: 1, ecn: Ecn::NotEct };
    for (first, ecn) in [(0b000, Ecn::NotEct), (0b010, Ecn::Ect0), (0b101, Ecn::Ect0)] {
        let mut peer = Peer::syn_received(&config(), Options::default());
        peer.conn = Connection::accept(now, &config(), local, remote, SeqNumber(ISS), 7, &syn);
        peer.poll_raw().unwrap();
        let header = peer.header(ACK | field(first), 0, 0);
        peer.give(header, &[]);
        peer.send(1000);
        let data = peer.poll_raw().unwrap();
        assert_eq!((data.ecn, number(data.header.flags)), (ecn, 5), "{first:03b}");
        assert_eq!(peer.conn.stats().congestion_echoes, 0, "the handshake's field is not a count");
        let header = peer.header(ACK | field(5), 0, 400);
        peer.give(header, &[]);
        assert_eq!(peer.conn.stats().congestion_echoes, 0);
    }
}

#[test]
fn a_count_that_a_cutting_device_would_spoil_travels_uncut() {
    let mut peer = established();
    peer.max_payload = 60_000;
    peer.ecn = Ecn::Ce;
    peer.more(1000); // six: the bit of CWR
    peer.send(5000);
    let data = peer.poll_raw().unwrap();
    assert_eq!((number(data.header.flags), data.len), (6, 1000));
    peer.drain();
    peer.more(1000);
    peer.more(1000); // eight
    peer.ecn = Ecn::NotEct;
    peer.ack(5000);
    peer.drain();
    peer.send(15_000);
    let data = peer.poll_raw().unwrap();
    assert_eq!(number(data.header.flags), 0);
    assert!(data.len > 1000);
}

#[test]
fn a_marking_queue_is_kept_short_whoever_can_what() {
    let accurate = config();
    let classic = Config { accurate_ecn: AccurateEcn::Off, ..config() };
    let passive = Config { nodelay: true, ..Config::default() };
    for (configs, is_accurate) in [
        ([&accurate, &accurate], true),
        ([&accurate, &passive], true),
        ([&accurate, &classic], false),
        ([&classic, &accurate], false),
    ] {
        for max_payload in [0, 60_000] {
            let path = Path { rate: 12_500_000, queue: 2_000_000, mark: 100_000, ..Path::default() };
            let configs = configs.map(Config::clone);
            let mut world = World::with_configs(9, configs, [path.clone(), path]);
            world.hosts[0].to_send = 20_000_000;
            world.hosts[0].max_payload = max_payload;
            world.run_until(Duration::from_secs(20), World::transfers_done);
            let info = world.hosts[0].conn.info();
            assert_eq!((info.ecn, info.accurate_ecn), (true, is_accurate));
            let (stats, peer) = (world.hosts[0].conn.stats(), world.hosts[1].conn.stats());
            assert_eq!((world.dropped, stats.retransmissions), (0, 0));
            assert!(stats.congestion_echoes >= 2 && peer.congestion_marks >= 2, "{stats:?} {peer:?}");
            if is_accurate && max_payload == 0 {
                assert_eq!(stats.marks_told, peer.congestion_marks, "not one is missed");
            }
        }
    }
}

#[test]
fn a_restored_connection_goes_on_counting() {
    let path = Path { rate: 12_500_000, queue: 2_000_000, mark: 50_000, ..Path::default() };
    let mut world = World::new(21, &config(), &path);
    world.hosts[0].to_send = 20_000_000;
    world.run_until(Duration::from_secs(20), |world| world.hosts[1].conn.stats().congestion_marks > 20);
    let before = world.hosts[1].conn.stats().congestion_marks;
    world.restart(1);
    world.run_until(Duration::from_secs(20), |world| world.hosts[0].conn.stats().marks_told > 5);
    world.restart(0);
    assert!(world.hosts[0].conn.info().accurate_ecn);
    world.run_until(Duration::from_secs(20), World::transfers_done);
    let marks = before + world.hosts[1].conn.stats().congestion_marks;
    let more = world.hosts[0].conn.stats().marks_told;
    assert!(more > 0 && more <= marks, "{more} told of {marks}");
}
