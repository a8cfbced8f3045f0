use super::*;

const ETHERNET: InterfaceId = InterfaceId(1);

fn table() -> Neighbours {
    Neighbours::new(4, KeyedState::new([3; 16]))
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn hardware(last: u8) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, last])
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

#[test]
fn three_requests_then_failure_then_a_new_try() {
    let mut table = table();
    let key = table.find_or_create(at(0), ETHERNET, address(1)).0.unwrap();
    let entry = table.get_mut(key).unwrap();
    assert_eq!(entry.on_use(at(0)), Use::Solicit(at(1)));
    assert_eq!(entry.on_use(at(0)), Use::Wait);
    assert_eq!(entry.on_timer(at(1)), OnTimer::Broadcast(at(2)));
    assert_eq!(entry.on_timer(at(2)), OnTimer::Broadcast(at(3)));
    assert_eq!(entry.on_timer(at(3)), OnTimer::Failed);
    assert_eq!(entry.state, NeighbourState::Failed);
    assert_eq!(entry.on_use(at(4)), Use::Solicit(at(5)));
}

#[test]
fn an_answer_is_trusted_then_asked_again() {
    let mut table = table();
    let key = table.find_or_create(at(0), ETHERNET, address(1)).0.unwrap();
    let entry = table.get_mut(key).unwrap();
    entry.on_use(at(0));
    assert!(entry.on_evidence(at(0), hardware(1), Evidence::Reply, REACHABLE_TIME));
    assert_eq!(entry.on_use(at(30)), Use::Send(hardware(1)));
    assert_eq!(entry.on_use(at(31)), Use::SendAndArm(hardware(1), at(36)));
    assert_eq!(entry.on_use(at(32)), Use::Send(hardware(1)));
    assert_eq!(entry.on_timer(at(36)), OnTimer::Unicast(hardware(1), at(37)));
    assert!(!entry.on_evidence(at(36), hardware(1), Evidence::Reply, REACHABLE_TIME));
    assert_eq!(entry.state, NeighbourState::Reachable);
    entry.on_confirmed_from_above(at(60));
    assert_eq!(entry.on_use(at(90)), Use::Send(hardware(1)));
}

#[test]
fn an_unsolicited_reply_does_not_refresh_and_a_new_address_waits_for_the_lock() {
    let mut table = table();
    let key = table.find_or_create(at(0), ETHERNET, address(1)).0.unwrap();
    let entry = table.get_mut(key).unwrap();
    entry.on_evidence(at(0), hardware(1), Evidence::Heard, REACHABLE_TIME);
    assert_eq!(entry.state, NeighbourState::Stale);
    entry.on_use(at(0));
    entry.on_evidence(at(0), hardware(2), Evidence::Reply, REACHABLE_TIME);
    assert_eq!(entry.hardware, hardware(1));
    entry.on_evidence(at(5), hardware(2), Evidence::Reply, REACHABLE_TIME);
    assert_eq!((entry.hardware, entry.state), (hardware(2), NeighbourState::Stale));
}

#[test]
fn the_waiting_room_and_the_table_are_bounded() {
    let mut table = table();
    let key = table.find_or_create(at(0), ETHERNET, address(1)).0.unwrap();
    let entry = table.get_mut(key).unwrap();
    let dropped: usize = (0..100).map(|_| entry.push_waiting(vec![0; 1500])).sum();
    assert_eq!(dropped, 100 - MAX_WAITING_PACKETS);
    let dropped: usize = (0..10).map(|_| entry.push_waiting(vec![0; 60_000])).sum();
    assert!(dropped > 0);
    assert!(entry.waiting_bytes <= MAX_WAITING_BYTES);
    for last in 2..20 {
        assert!(table.find_or_create(at(u64::from(last)), ETHERNET, address(last)).0.is_some());
        assert!(table.iter().count() <= 4);
    }
    assert!(table.find(ETHERNET, address(1)).is_some(), "an entry with waiting packets stays");
    assert!(table.find(ETHERNET, address(19)).is_some());
}
