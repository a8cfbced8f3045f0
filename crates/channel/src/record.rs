//! The values in the sockets' records that are more than a number.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use tcp::TcpInfo;

use crate::layout::header_f::INFO_WORDS;

bitflags::bitflags! {
    /// What a socket is doing. Loaded before the cursors: with [`PEER_CLOSED`](Self::PEER_CLOSED) set, `received` is final.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct State: u32 {
        /// It has a local address.
        const BOUND = 1;
        /// A connection attempt is going on.
        const CONNECTING = 1 << 1;
        /// The connection was established (TCP), or the peer is set (UDP). It stays set.
        const CONNECTED = 1 << 2;
        /// It takes connections.
        const LISTENING = 1 << 3;
        /// The peer sends nothing any more.
        const PEER_CLOSED = 1 << 4;
        /// Nothing can be sent any more.
        const SEND_CLOSED = 1 << 5;
        /// An error happened (see the record's error).
        const ERROR = 1 << 6;
        /// The connection is over in both directions.
        const CLOSED = 1 << 7;
        /// The connection attempt waits for the first bytes, to send them with its SYN (TCP Fast Open).
        const AWAITS_DATA = 1 << 8;
        /// Its queue of errors is not empty.
        const HAS_QUEUED = 1 << 9;
        /// Another application that holds it uses it: this number stands for nothing, until it is closed.
        const MOVED = 1 << 10;
    }
}

impl State {
    /// With one of these a reader waits for nothing more.
    pub const ENDS_READING: Self = Self::PEER_CLOSED.union(Self::ERROR).union(Self::CLOSED);
    /// With one of these a writer waits for nothing more.
    pub const ENDS_WRITING: Self = Self::SEND_CLOSED.union(Self::ERROR).union(Self::CLOSED);
}

/// What an INFO command asks for, in the words of F's header.
pub(crate) fn info_words(info: &TcpInfo) -> [u64; INFO_WORDS] {
    let bytes = info.to_bytes();
    let mut words = bytes.chunks_exact(8);
    core::array::from_fn(|_| words.next().and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes))
}

/// From the words that [`info_words`] made.
pub(crate) fn info_from_words(words: [u64; INFO_WORDS]) -> TcpInfo {
    let mut bytes = [0; TcpInfo::SIZE];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    TcpInfo::from_bytes(&bytes)
}

/// An address in words: two of the address itself, then port, family (0: none) and scope.
pub(crate) fn address_words(address: Option<SocketAddr>) -> [u64; 3] {
    let Some(address) = address else { return [0; 3] };
    let (family, scope) = match address {
        SocketAddr::V4(_) => (4, 0),
        SocketAddr::V6(v6) => (6, v6.scope_id()),
    };
    let [first, second] = ip_words(address.ip());
    [first, second, u64::from(address.port()) | family << 16 | u64::from(scope) << 32]
}

/// The address in words that [`address_words`] made; `None` for family 0 or one that does not exist.
pub(crate) fn address_from_words(words: [u64; 3]) -> Option<SocketAddr> {
    let (port, scope) = (words[2] as u16, (words[2] >> 32) as u32);
    let ip = ip_from_words([words[0], words[1]], (words[2] >> 16) as u16)?;
    Some(socket_address(ip, port, scope))
}

/// An address in two words, with zeroes behind an IPv4 one.
pub(crate) fn ip_words(ip: IpAddr) -> [u64; 2] {
    let mut octets = [0; 16];
    match ip {
        IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => octets = v6.octets(),
    }
    let value = u128::from_le_bytes(octets);
    [value as u64, (value >> 64) as u64]
}

/// The address in two words, of family 4 or 6.
pub(crate) fn ip_from_words(words: [u64; 2], family: u16) -> Option<IpAddr> {
    let octets = (u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes();
    match family {
        4 => Some(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into()),
        6 => Some(Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

pub(crate) fn socket_address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_words() {
        let v6 = SocketAddr::V6(SocketAddrV6::new("fe80::1:2".parse().unwrap(), 4711, 0, 9));
        for address in ["192.0.2.7:80".parse().unwrap(), "[2001:db8::1]:65535".parse().unwrap(), v6] {
            assert_eq!(address_from_words(address_words(Some(address))), Some(address));
        }
        assert_eq!(address_from_words(address_words(None)), None);
        assert_eq!(address_from_words([1, 2, 7 << 16]), None);
    }
}
