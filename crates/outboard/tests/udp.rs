//! UDP sockets between two hosts on a wire in memory.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{FIRST, SECOND, hosts};
use outboard::UdpSocket;

#[test]
fn datagrams_keep_their_bounds_and_senders() {
    let (first, second) = hosts();
    let (here, there) =
        (UdpSocket::bind(&first, (FIRST, 0)).unwrap(), UdpSocket::bind(&second, "0.0.0.0:0").unwrap());
    let port = there.local_addr().unwrap().port();
    for datagram in [&b"one"[..], b"", &[7; 60_000]] {
        assert_eq!(here.send_to(datagram, (SECOND, port)).unwrap(), datagram.len());
        let mut buffer = vec![0; 65_536];
        assert_eq!(there.peek_from(&mut buffer).unwrap().0, datagram.len());
        let (count, from) = there.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..count], from), (datagram, here.local_addr().unwrap()));
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let (first, second) = hosts();
    let here = UdpSocket::bind(&first, (FIRST, 0)).unwrap();
    let (peer, other) =
        (UdpSocket::bind(&second, (SECOND, 0)).unwrap(), UdpSocket::bind(&second, (SECOND, 0)).unwrap());
    here.connect(peer.local_addr().unwrap()).unwrap();
    other.send_to(b"stranger", here.local_addr().unwrap()).unwrap();
    peer.send_to(b"friend", here.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(here.recv(&mut buffer).unwrap(), 6);
    here.send(b"answer").unwrap();
    assert_eq!(peer.recv(&mut buffer).unwrap(), 6);
    assert_eq!(here.peer_addr().unwrap(), peer.local_addr().unwrap());
}

#[test]
fn errors_have_their_kinds() {
    let (first, _second) = hosts();
    let socket = UdpSocket::bind(&first, (FIRST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let too_long = socket.send_to(&[0; 65_508], (SECOND, 9)).unwrap_err();
    assert_eq!(too_long.raw_os_error(), Some(libc::EMSGSIZE));
    socket.set_read_timeout(None).unwrap();
    socket.connect((SECOND, 9)).unwrap();
    socket.send(b"nobody there").unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
