//! TCP sockets between two hosts on a wire in memory, as a user of `std::net` expects them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::{BufRead, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use common::{FIRST, hosts, hosts_over};
use outboard::frame::Medium;
use outboard::raw::Interest;
use outboard::{CongestionAlgorithm, Endpoint, Limit, PollEntry, TcpListener, TcpStream, poll};

/// A connection between two hosts: the side that connected, and the side that accepted.
fn connection(server: &Endpoint, client: &Endpoint) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(server, (FIRST, 0)).unwrap();
    let near = TcpStream::connect(client, listener.local_addr().unwrap()).unwrap();
    let (far, peer) = listener.accept().unwrap();
    assert_eq!(peer, near.local_addr().unwrap());
    assert_eq!(far.local_addr().unwrap(), near.peer_addr().unwrap());
    (near, far)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + (index >> 8) * 7 + (index >> 16)) as u8).collect()
}

#[test]
fn bytes_arrive_both_ways_over_every_kind_of_wire() {
    let bytes = &pattern(3_000_001);
    for (medium, offload) in [(Medium::Ethernet, true), (Medium::Ethernet, false), (Medium::Ip, false)] {
        let (server, client) = hosts_over(medium, offload);
        let (near, far) = connection(&server, &client);
        thread::scope(|scope| {
            for (from, to) in [(&near, &far), (&far, &near)] {
                scope.spawn(move || {
                    let mut from = from;
                    from.write_all(bytes).unwrap();
                    from.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let (mut to, mut got) = (to, Vec::new());
                    to.read_to_end(&mut got).unwrap();
                    assert!(got == *bytes, "{medium:?} {offload}: {} bytes", got.len());
                });
            }
        });
    }
}

#[test]
fn a_connection_tells_what_it_did_and_what_limits_it() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    listener.set_congestion_control(CongestionAlgorithm::Bbr).unwrap();
    let near = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    assert_eq!(near.congestion_control().unwrap(), CongestionAlgorithm::Cubic);
    assert_eq!(far.congestion_control().unwrap(), CongestionAlgorithm::Bbr);
    assert_eq!(far.info().unwrap().congestion, CongestionAlgorithm::Bbr, "inherited");
    near.set_congestion_control(CongestionAlgorithm::NewReno).unwrap();
    assert_eq!(near.congestion_control().unwrap(), CongestionAlgorithm::NewReno);
    // Nobody reads: the peer's window limits, until somebody does.
    (&near).write_all(&vec![7; 300_000]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let stuck = loop {
        let info = near.info().unwrap();
        if info.limit == Limit::PeerWindow && info.rwnd_limited > 0 {
            break info;
        }
        assert!(Instant::now() < deadline, "{info:?}");
        thread::yield_now();
    };
    assert!(stuck.notsent_bytes > 0, "{stuck:?}");
    assert_eq!((stuck.state, stuck.snd_mss, stuck.congestion), (1, 1448, CongestionAlgorithm::NewReno));
    (&far).read_exact(&mut vec![0; 300_000]).unwrap();
    let done = loop {
        let info = near.info().unwrap();
        if info.bytes_acked == 300_000 {
            break info;
        }
        assert!(Instant::now() < deadline, "{info:?}");
    };
    assert_eq!((done.notsent_bytes, done.unacked, done.limit), (0, 0, Limit::Application));
    assert!(done.bytes_sent >= 300_000 && done.data_segs_out >= 300_000 / 1448);
    assert!(done.limited_by.time(Limit::PeerWindow) >= stuck.limited_by.time(Limit::PeerWindow));
    assert_eq!(far.info().unwrap().bytes_received, 300_000);
    assert_eq!(listener.raw().info().unwrap().state, 10, "TCP_LISTEN");
}

#[test]
fn idle_connections_give_their_send_memory_back() {
    let (server, client) = hosts();
    let pairs: Vec<_> = (0..20).map(|_| connection(&server, &client)).collect();
    let bytes = pattern(100_000);
    let mut now = Instant::now();
    let mut tend_later = || {
        now += Duration::from_secs(10);
        client.tend_at(now)
    };
    for _ in 0..2 {
        for (near, far) in &pairs {
            (&*near).write_all(&bytes).unwrap();
            let mut got = vec![0; bytes.len()];
            (&*far).read_exact(&mut got).unwrap();
            assert!(got == bytes);
            while near.raw().unacknowledged() > 0 {
                thread::yield_now();
            }
        }
        assert!(client.send_memory() >= 20 * 100_000);
        // What was used since the last look stays, what was not goes.
        tend_later();
        (&pairs[0].0).write_all(b"more").unwrap();
        while pairs[0].0.raw().unacknowledged() > 0 {
            thread::yield_now();
        }
        tend_later();
        assert!((4096..=1 << 20).contains(&client.send_memory()), "{}", client.send_memory());
        tend_later();
        assert_eq!(client.send_memory(), 0);
        (&pairs[0].1).read_exact(&mut [0; 4]).unwrap();
    }
}

#[test]
fn bytes_are_produced_and_read_in_place() {
    let (server, client) = hosts();
    let (near, far) = connection(&server, &client);
    let bytes = pattern(5_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = near.writer();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let space = writer.reserve(rest.len().min(100_000)).unwrap();
                let count = space.len();
                space.copy_from_slice(&rest[..count]);
                writer.commit(count).unwrap();
                rest = &rest[count..];
            }
            drop(writer);
            near.shutdown(Shutdown::Write).unwrap();
        });
        let mut reader = far.reader();
        let mut at = 0;
        loop {
            let there = reader.fill_buf().unwrap();
            if there.is_empty() {
                break;
            }
            // Less than all, so that what is left stays.
            let count = there.len().div_ceil(2);
            assert!(there[..count] == bytes[at..at + count], "at {at}");
            at += count;
            reader.consume(count);
        }
        assert_eq!(at, bytes.len());
    });
}

#[test]
fn a_reader_reads_lines() {
    let (server, client) = hosts();
    let (mut near, far) = connection(&server, &client);
    near.write_all(b"first\nsecond\nrest").unwrap();
    drop(near);
    let lines: Vec<String> = far.reader().lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["first", "second", "rest"]);
}

#[test]
fn vectored_reads_and_writes_fill_in_order() {
    let (server, client) = hosts();
    let (mut near, mut far) = connection(&server, &client);
    let sent =
        near.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cdefg")]).unwrap();
    assert_eq!(sent, 7);
    assert_eq!(far.peek(&mut [0; 10]).unwrap_or(0).min(7), far.peek(&mut [0; 7]).unwrap());
    let mut all = [0; 7];
    while far.peek(&mut all).unwrap() < 7 {}
    let (mut one, mut two) = ([0; 3], [0; 9]);
    let count = far.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap();
    assert_eq!((count, &one, &two[..4]), (7, b"abc", &b"defg"[..]));
}

#[test]
fn refused_connections_and_lost_peers_have_their_kinds() {
    let (server, client) = hosts();
    let refused = TcpStream::connect(&client, (FIRST, 9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let (near, far) = connection(&server, &client);
    // Closing with unread bytes resets.
    (&near).write_all(b"unread").unwrap();
    while far.peek(&mut [0]).unwrap() == 0 {}
    drop(far);
    assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!((&near).write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let unreachable = TcpStream::connect(&client, "198.51.100.1:80").unwrap_err();
    assert_eq!(unreachable.kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn addresses_in_use_and_foreign_ones_are_refused() {
    let (server, _client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    let again = TcpListener::bind(&server, listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    let foreign = TcpListener::bind(&server, "198.51.100.1:80").unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn nothing_to_do_is_would_block() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let near = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    near.set_nonblocking(false).unwrap();
    near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(near.read_timeout().unwrap(), Some(Duration::from_millis(5)));
    assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(near.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    // Nobody reads: the send ring and the peer's receive ring fill up.
    near.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let full = std::iter::from_fn(|| Some((&near).write(&[0; 65536]))).find_map(Result::err).unwrap();
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_half_closed_connection_still_carries_the_other_half() {
    let (server, client) = hosts();
    let (mut near, mut far) = connection(&server, &client);
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    far.write_all(b"still here").unwrap();
    drop(far);
    let mut text = String::new();
    near.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert_eq!(near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn clones_are_the_same_connection() {
    let (server, client) = hosts();
    let (near, mut far) = connection(&server, &client);
    let mut clone = near.try_clone().unwrap();
    drop(near);
    clone.write_all(b"through the clone").unwrap();
    let mut buffer = [0; 17];
    far.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"through the clone");
    drop(clone);
    assert_eq!(far.read(&mut buffer).unwrap(), 0);
}

#[test]
fn options_are_kept() {
    let (server, client) = hosts();
    let (near, _far) = connection(&server, &client);
    assert!(!near.nodelay().unwrap());
    near.set_nodelay(true).unwrap();
    assert!(near.nodelay().unwrap());
    near.set_ttl(9).unwrap();
    assert_eq!(near.ttl().unwrap(), 9);
    assert!(near.take_error().unwrap().is_none());
}

#[test]
fn poll_says_which_of_many_is_ready() {
    let (server, client) = hosts();
    let pairs: Vec<(TcpStream, TcpStream)> = (0..20).map(|_| connection(&server, &client)).collect();
    let mut entries: Vec<PollEntry> =
        pairs.iter().map(|(near, _)| PollEntry::new(near.raw(), Interest::READABLE)).collect();
    assert_eq!(poll(&mut entries, Some(Duration::from_millis(1))).unwrap(), 0);
    (&pairs[13].1).write_all(b"x").unwrap();
    assert_eq!(poll(&mut entries, None).unwrap(), 1);
    assert!(entries[13].ready.readable && !entries[12].ready.readable);
    let mut writable = [PollEntry::new(pairs[0].0.raw(), Interest::BOTH)];
    assert_eq!(poll(&mut writable, None).unwrap(), 1);
    assert!(writable[0].ready.writable && !writable[0].ready.readable);
}

#[test]
fn a_small_exchange_repeats_many_times() {
    let (server, client) = hosts();
    let (mut near, mut far) = connection(&server, &client);
    near.set_nodelay(true).unwrap();
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read(&mut byte).unwrap() == 1 {
            far.write_all(&byte).unwrap();
        }
    });
    for round in 0..5000u32 {
        let byte = [round as u8];
        near.write_all(&byte).unwrap();
        let mut back = [0];
        near.read_exact(&mut back).unwrap();
        assert_eq!(back, byte);
    }
    drop(near);
    echo.join().unwrap();
}

#[test]
fn sockets_come_and_go_by_the_thousand() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming().take(3000) {
                let mut byte = [0];
                let mut stream = stream.unwrap();
                stream.read_exact(&mut byte).unwrap();
                stream.write_all(&byte).unwrap();
            }
        });
        for _ in 0..3000 {
            let mut stream = TcpStream::connect(&client, address).unwrap();
            stream.write_all(b"x").unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"x");
        }
    });
}

#[test]
fn threads_that_accept_on_one_listener_all_wait_for_their_turn() {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            // Woken for a connection that another thread has taken, one waits on: `accept` never says `WouldBlock`.
            scope.spawn(|| (0..EACH).for_each(|_| drop(listener.accept().unwrap())));
        }
        for _ in 0..THREADS * EACH {
            let mut stream = TcpStream::connect(&client, address).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn a_listener_that_goes_resets_who_waits() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    let near = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
    drop(listener);
    let end = (&near).read(&mut [0]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn the_second_connection_brings_its_request_in_the_syn() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    listener.set_fast_open(16).unwrap();
    let address = listener.local_addr().unwrap();
    let request = pattern(4000);
    for round in 0..3 {
        thread::scope(|scope| {
            let near = scope.spawn(|| {
                let mut near = TcpStream::connect_with(&client, &address, &request).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                near.read_to_end(&mut answer).unwrap();
                answer
            });
            let (mut far, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            far.read_to_end(&mut got).unwrap();
            assert!(got == request, "round {round}: {} bytes", got.len());
            far.write_all(&got).unwrap();
            drop(far);
            assert!(near.join().unwrap() == request);
        });
    }
    // Nobody listens: the call that sends the SYN says so.
    drop(listener);
    let refused = TcpStream::connect_with(&client, &address, &request).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_put_off_accept_waits_for_the_first_bytes() {
    let (server, client) = hosts();
    let listener = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    listener.set_deferred_accept(Duration::from_secs(3600)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut near = TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap();
    // A connection to another listener takes the same way, later: what could have come has come.
    let other = TcpListener::bind(&server, (FIRST, 0)).unwrap();
    let _later = TcpStream::connect(&client, other.local_addr().unwrap()).unwrap();
    other.accept().unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    near.write_all(b"now").unwrap();
    listener.set_nonblocking(false).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let mut got = [0; 3];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"now");
}
