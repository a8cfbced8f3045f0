use super::*;
use proptest::prelude::*;

const GEOMETRY: Geometry = Geometry {
    sockets: 1000,
    waiters: 8,
    commands: 64,
    events: 64,
    send_bytes: 1 << 20,
    receive_bytes: 1 << 20,
};

#[test]
fn what_is_longer_than_any_time_is_the_longest() {
    let longest = Duration::from_micros(LONGEST_TIME_US);
    for given in [longest + Duration::from_micros(1), Duration::from_secs(i32::MAX as u64), Duration::MAX] {
        let option = SocketOption::DeferAccept(Some(given));
        let words = Command::SetOption { socket: 1, sequence: 2, option }.encode();
        let option = SocketOption::DeferAccept(Some(longest));
        assert_eq!(
            Command::decode(words, &GEOMETRY),
            Ok(Command::SetOption { socket: 1, sequence: 2, option })
        );
    }
}

fn commands() -> Vec<Command> {
    let (socket, sequence) = (999, u32::MAX);
    let keepalive =
        Keepalive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 };
    let mut all = vec![
        Command::OpenTcp { socket, sequence },
        Command::OpenUdp { socket, sequence },
        Command::Bind { socket, sequence, local: "[2001:db8::7]:65535".parse().unwrap() },
        Command::Bind { socket, sequence, local: "192.0.2.1:0".parse().unwrap() },
        Command::Listen { socket, sequence, backlog: 4096 },
        Command::Connect { socket, sequence, remote: Some("198.51.100.9:80".parse().unwrap()) },
        Command::Connect { socket, sequence, remote: None },
        Command::AttachSend { socket, location: RingLocation(77) },
        Command::Send { socket, queued_to: u64::MAX },
        Command::Fill { socket, file: u16::MAX, queued_to: u64::MAX, offset: 1 << 62 },
        Command::SendMore { socket, queued_to: 1 },
        Command::SendUrgent { socket, queued_to: 1 },
        Command::Consumed { socket },
        Command::Close { socket },
        Command::Abort { socket },
        Command::UnknownOption { socket, sequence },
        Command::Info { socket, sequence },
        Command::TakeError { socket, sequence },
        Command::Stamp {
            socket,
            offset: u64::MAX,
            stamp: Stamp { scheduled: true, sent: false, acknowledged: true, key: u32::MAX },
        },
        Command::Claim { socket, sequence, identity: u64::MAX },
        Command::PathMtu { socket, sequence, remote: None },
        Command::PathMtu { socket, sequence, remote: Some("198.51.100.9:80".parse().unwrap()) },
    ];
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        all.push(Command::Shutdown { socket, sequence, how });
    }
    for option in [
        SocketOption::ReuseAddress(true),
        SocketOption::ReusePort(false),
        SocketOption::Broadcast(true),
        SocketOption::Ttl(64),
        SocketOption::Tos(0xb8),
        SocketOption::NoDelay(true),
        SocketOption::Cork(false),
        SocketOption::QuickAck(true),
        SocketOption::Keepalive(None),
        SocketOption::Keepalive(Some(keepalive)),
        SocketOption::ReceiveLimit(u32::MAX),
        SocketOption::UserTimeout(None),
        SocketOption::UserTimeout(Some(Duration::from_millis(1500))),
        SocketOption::Linger2(Some(Duration::from_secs(60))),
        SocketOption::SynRetries(None),
        SocketOption::SynRetries(Some(255)),
        SocketOption::Congestion(CongestionAlgorithm::Bbr),
        SocketOption::FastOpen(u32::MAX),
        SocketOption::FastOpenConnect(true),
        SocketOption::DeferAccept(Some(Duration::from_secs(5))),
        SocketOption::MaxSegment(None),
        SocketOption::MaxSegment(Some(1100)),
        SocketOption::TellSent(true),
        SocketOption::MtuDiscovery(MtuDiscovery::Omit),
        SocketOption::QueueErrors(true),
        SocketOption::ReceiveRuns(true),
    ] {
        all.push(Command::SetOption { socket, sequence, option });
    }
    all
}

#[test]
fn commands_survive_the_ring() {
    for command in commands() {
        assert_eq!(Command::decode(command.encode(), &GEOMETRY), Ok(command));
        assert_eq!(command.socket(), 999);
    }
    let of_no_socket = Command::ReturnFile { file: u16::MAX };
    assert_eq!(Command::decode(of_no_socket.encode(), &GEOMETRY), Ok(of_no_socket));
}

#[test]
fn a_socket_outside_of_the_table_is_an_offence() {
    for command in commands() {
        let mut words = command.encode();
        words[0] = words[0] & 0xffff_ffff | 1000 << 32;
        assert_eq!(Command::decode(words, &GEOMETRY), Err(Offence::BadSocket));
    }
}

proptest! {
    #[test]
    fn any_words_are_a_command_or_an_offence(words: [u64; 4], operation in 0u64..32, small in 0u64..64) {
        let near = [words[0] & !0xff_ffff | operation | small << 16, words[1] & 0xff, words[2], words[3]];
        for words in [words, near, [near[0] & 0xffff_ffff, near[1], near[2], near[3]]] {
            if let Ok(command) = Command::decode(words, &GEOMETRY) {
                prop_assert_eq!(Command::decode(command.encode(), &GEOMETRY), Ok(command));
            }
        }
    }
}
