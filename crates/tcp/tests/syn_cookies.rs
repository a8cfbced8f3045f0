//! SYN cookies: what a stateless SYN-ACK promises, the connection that is made of its acknowledgement keeps.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod harness;

use base::{Duration, Instant, SeqNumber};
use harness::peer::{ACK, SYN, SYN_ACK, blank};
use harness::world::addresses;
use harness::{CheckedBuffer, pattern};
use tcp::{
    AccurateEcn, Config, Connection, CookieEnds, Ecn, SegmentIn, SegmentOut, State, SynCookies, Verdict,
};
use wire::tcp::{Flags, Header, Options, Timestamps};

const CLIENT_ISN: SeqNumber = SeqNumber(u32::MAX - 3);

fn now() -> Instant {
    Instant::from_millis(1_000_123)
}

fn cookies() -> SynCookies {
    SynCookies::new([9; 16])
}

fn ends() -> CookieEnds {
    let [remote, local] = addresses();
    CookieEnds { local, remote, timestamp_offset: 0xdead_beef }
}

fn segment(header: Header, payload: &[u8]) -> SegmentIn<'_> {
    SegmentIn { header, payload, arrival: now(), segment_count: 1, ecn: Ecn::NotEct }
}

fn syn(options: Options, more: Flags) -> Header {
    Header { seq: CLIENT_ISN, window: 50_000, options, ..blank(SYN | more) }
}

fn full_options() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(9),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 4711, echo: 0 }),
        ..Options::default()
    }
}

/// The client's last segment of the handshake.
fn last(answer: &SegmentOut, later: Duration) -> Header {
    let stamps = answer.header.options.timestamps;
    Header {
        seq: CLIENT_ISN + 1,
        ack: answer.header.seq + 1,
        window: 400,
        options: Options {
            timestamps: stamps
                .map(|stamps| Timestamps { value: 4711 + later.as_millis() as u32, echo: stamps.value }),
            ..Options::default()
        },
        ..blank(ACK)
    }
}

fn open(config: &Config, answer: &SegmentOut, payload: &[u8]) -> (Connection, CheckedBuffer) {
    let later = Duration::from_millis(50);
    let ack = segment(last(answer, later), payload);
    let mut connection = cookies().open(now() + later, config, ends(), &ack).expect("it is ours");
    assert_eq!(connection.state(), State::Established);
    let mut buffer = CheckedBuffer::new(0);
    let verdict = connection.handle_segment(now() + later, &ack, &mut buffer);
    assert!(matches!(verdict, Verdict::Accepted | Verdict::Predicted), "{verdict}");
    connection.check_invariants().unwrap();
    (connection, buffer)
}

#[test]
fn all_options_survive_in_the_timestamp() {
    let config = Config { ecn: true, ..Config::default() };
    let header = syn(full_options(), Flags::ECE | Flags::CWR);
    let answer = cookies().answer(now(), &config, ends(), &segment(header, b""));
    assert_eq!(answer.header.flags, SYN_ACK | Flags::ECE);
    assert_eq!(answer.header.ack, CLIENT_ISN + 1);
    let options = &answer.header.options;
    assert!(options.sack_permitted && options.mss == Some(1460) && options.window_scale.is_some());
    assert_eq!(options.timestamps.unwrap().echo, 4711);
    let (connection, _) = open(&config, &answer, b"");
    let info = connection.info();
    assert!(info.sack && info.timestamps && info.ecn);
    assert_eq!((info.send_scale, info.send_window), (Some(9), 400 << 9));
    assert_eq!(info.receive_scale, options.window_scale);
    assert_eq!(connection.mss(), 1460 - 12);
    assert!(connection.is_passive());
    assert_eq!(connection.congestion_window(), 10 * 1448);
    assert_eq!(connection.srtt(), None, "no round trip was measured");
}

#[test]
fn each_option_is_kept_or_not_by_itself() {
    for bits in 0..8u32 {
        let (scale, sack, ecn) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let config = Config { ecn: true, ..Config::default() };
        let offered = Options { window_scale: scale.then_some(14), sack_permitted: sack, ..full_options() };
        let more = if ecn { Flags::ECE | Flags::CWR } else { Flags::empty() };
        let answer = cookies().answer(now(), &config, ends(), &segment(syn(offered, more), b""));
        let (connection, _) = open(&config, &answer, b"");
        let info = connection.info();
        assert_eq!((info.send_scale, info.sack, info.ecn), (scale.then_some(14), sack, ecn));
        assert_eq!(answer.header.options.sack_permitted, sack);
        assert_eq!(answer.header.options.window_scale.is_some(), scale);
        // What this host does not want at all cannot be smuggled in.
        let plain = Config {
            window_scaling: false,
            selective_acks: false,
            ecn: false,
            accept_ecn: false,
            ..Config::default()
        };
        let ack = segment(last(&answer, Duration::ZERO), b"");
        assert_eq!(cookies().open(now(), &plain, ends(), &ack).is_some(), bits == 0);
    }
}

#[test]
fn whoever_asks_for_accurate_feedback_gets_the_classic_one() {
    let config = Config { ecn: true, accurate_ecn: AccurateEcn::Offer, ..Config::default() };
    let asks = Flags::AE | Flags::CWR | Flags::ECE;
    let answer = cookies().answer(now(), &config, ends(), &segment(syn(full_options(), asks), b""));
    assert_eq!(answer.header.flags.intersection(asks), Flags::ECE);
    let (connection, _) = open(&config, &answer, b"");
    assert!(connection.info().ecn && !connection.info().accurate_ecn);
}

#[test]
fn without_timestamps_only_the_mss_survives() {
    let offered = Options { timestamps: None, ..full_options() };
    let config = Config::default();
    let answer = cookies().answer(now(), &config, ends(), &segment(syn(offered, Flags::empty()), b""));
    assert_eq!(answer.header.options, Options { mss: Some(1460), ..Options::default() });
    let (connection, _) = open(&config, &answer, b"");
    let info = connection.info();
    assert!(!info.sack && !info.timestamps && info.send_scale.is_none());
    assert_eq!((info.send_window, connection.mss()), (400, 1460));
}

#[test]
fn the_mss_is_rounded_down_to_one_that_the_cookie_can_tell() {
    let told = |mss: Option<u16>| {
        let offered = Options { mss, ..full_options() };
        let config = Config { mss: 9000, announced_mss: 9000, ..Config::default() };
        let answer = cookies().answer(now(), &config, ends(), &segment(syn(offered, Flags::empty()), b""));
        open(&config, &answer, b"").0.mss() + 12
    };
    assert_eq!(told(None), 536);
    assert_eq!(told(Some(100)), 536, "as Linux does");
    assert_eq!([1219, 1460, 1459, 8960, 65_000].map(|mss| told(Some(mss))), [536, 1460, 1440, 8960, 8960]);
}

#[test]
fn data_with_the_last_segment_is_taken() {
    let answer = cookies().answer(
        now(),
        &Config::default(),
        ends(),
        &segment(syn(full_options(), Flags::empty()), b""),
    );
    let payload: Vec<u8> = (0..900).map(|offset| pattern(0, offset)).collect();
    let (connection, buffer) = open(&Config::default(), &answer, &payload);
    assert_eq!(connection.received_to(), 900);
    assert!(buffer.covers(900));
}

#[test]
fn an_acknowledgement_that_is_late_or_of_another_is_nothing() {
    let config = Config::default();
    let answer = cookies().answer(now(), &config, ends(), &segment(syn(full_options(), Flags::empty()), b""));
    let good = last(&answer, Duration::ZERO);
    let opens = |at: Instant, header: &Header| {
        cookies().open(at, &config, ends(), &segment(header.clone(), b"")).is_some()
    };
    assert!(opens(now(), &good));
    assert!(opens(now() + Duration::from_secs(60), &good));
    assert!(!opens(now() + tcp::COOKIE_LIFETIME, &good));
    assert!(!opens(now(), &Header { ack: good.ack + 1, ..good.clone() }));
    assert!(!opens(now(), &Header { seq: good.seq + 1, ..good.clone() }));
    let mut stranger = ends();
    stranger.remote.set_port(1);
    assert!(cookies().open(now(), &config, stranger, &segment(good.clone(), b"")).is_none());
    assert!(SynCookies::new([1; 16]).open(now(), &config, ends(), &segment(good, b"")).is_none());
}
