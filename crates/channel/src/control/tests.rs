use super::*;
use proptest::prelude::*;

const GEOMETRY: Geometry =
    Geometry { sockets: 2, waiters: 3, commands: 4, events: 8, send_bytes: 1 << 33, receive_bytes: 4096 };

fn network() -> Network {
    let cidr = |address: &str, prefix| IpCidr::new(address.parse().unwrap(), prefix).unwrap();
    Network {
        addresses: vec![cidr("10.0.0.2", 24), cidr("2001:db8::2", 64)],
        routes: vec![(cidr("0.0.0.0", 0), Some("10.0.0.1".parse().unwrap())), (cidr("10.0.0.0", 24), None)],
        mtu: 65_535,
    }
}

#[test]
fn requests_survive_the_socket() {
    for request in [
        Request::Hello { version: VERSION, pid: 7, name: "nginx ✓".to_owned(), parent: None },
        Request::Hello { version: VERSION, pid: 7, name: "child".to_owned(), parent: Some([9; 16]) },
        Request::Release { identity: u64::MAX - 1 },
        Request::NewWaiter { slot: 1023 },
        Request::Lend,
    ] {
        assert_eq!(Request::decode(&request.encode()), Some(Ok(request)));
    }
    assert_eq!(Request::decode(b"STATUS"), None);
    assert_eq!(Request::decode(b"CONNECTIONS 0"), None);
    assert_eq!(Request::decode(b""), None);
}

#[test]
fn answers_survive_the_socket() {
    for answer in [
        Answer::Welcome { geometry: GEOMETRY, network: network(), token: [7; 16] },
        Answer::Bell { slot: 9 },
        Answer::Lender,
        Answer::Refused("no more applications".to_owned()),
    ] {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}

#[test]
fn another_version_is_refused_with_advice() {
    let mut hello = Request::Hello { version: VERSION, pid: 1, name: "x".to_owned(), parent: None }.encode();
    hello[8] = 99;
    hello.truncate(12);
    let Some(Ok(Request::Hello { version: 99, .. })) = Request::decode(&hello) else { panic!() };
    assert!(version_refusal(99).unwrap().contains("restart"));
    assert_eq!(version_refusal(VERSION), None);
}

#[test]
fn long_names_are_cut_and_long_lengths_refused() {
    let long = "ü".repeat(MAX_NAME);
    let hello = Request::Hello { version: VERSION, pid: 1, name: long, parent: None }.encode();
    let Some(Ok(Request::Hello { name, .. })) = Request::decode(&hello) else { panic!() };
    assert_eq!(name.len(), MAX_NAME);
    let mut lying = hello.clone();
    lying[16..20].copy_from_slice(&(u32::MAX).to_le_bytes());
    assert_eq!(Request::decode(&lying), Some(Err(NotUnderstood)));
}

proptest! {
    #[test]
    fn nothing_panics_on_any_message(kind in 0usize..7, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let kinds = [HELLO, NEW_WAITER, RELEASE, WELCOME, BELL, REFUSED, [0; 8]];
        let message = [&kinds[kind][..], &bytes].concat();
        let _ = Request::decode(&message);
        let _ = Answer::decode(&message);
        let mut near =
            Answer::Welcome { geometry: GEOMETRY, network: network(), token: [7; 16] }.encode();
        for (index, byte) in bytes.iter().enumerate() {
            let place = (index * 31 + usize::from(*byte)) % near.len();
            near[place] ^= byte;
        }
        let _ = Answer::decode(&near);
    }
}
