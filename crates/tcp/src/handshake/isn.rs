//! Initial sequence numbers and timestamp offsets that nobody else can predict (RFC 6528, RFC 7323 §7.1).
//!
//! `ISN = M + F(4-tuple, secret)`: M advances by one every 4 µs, F is SipHash-2-4 under a key that the stack draws once.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use base::{Instant, SeqNumber};
use siphasher::sip::SipHasher24;

/// The secret for one stack.
#[derive(Clone)]
pub struct IsnGenerator {
    key: [u8; 16],
}

impl core::fmt::Debug for IsnGenerator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IsnGenerator(secret)")
    }
}

impl IsnGenerator {
    /// A generator under a random key.
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The initial sequence number of a connection that starts now (RFC 6528 §3).
    pub fn isn(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> SeqNumber {
        let clock = (now.as_nanos() >> 12) as u32; // a tick of 4.096 µs
        SeqNumber(clock.wrapping_add(self.hash(0, local, remote) as u32))
    }

    /// The offset of a connection's timestamps (RFC 7323 §5.4): the same for the same four-tuple, so that timestamps
    /// stay monotonic from one connection to its reincarnation (RFC 6191).
    pub fn timestamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.hash(1, local, remote) as u32
    }

    fn hash(&self, purpose: u8, local: SocketAddr, remote: SocketAddr) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose);
        for address in [local, remote] {
            match address.ip() {
                IpAddr::V4(ip) => hasher.write(&ip.octets()),
                IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
            hasher.write(&address.port().to_be_bytes());
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Duration;

    #[test]
    fn advances_with_the_clock_and_differs_by_tuple_and_key() {
        let generator = IsnGenerator::new([7; 16]);
        let a: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let b: SocketAddr = "10.0.0.2:5000".parse().unwrap();
        let now = Instant::from_millis(50);
        let first = generator.isn(now, a, b);
        let later = generator.isn(now + Duration::from_millis(4096), a, b);
        assert_eq!(later.distance_from(first), 1_000_000);
        assert_ne!(first, generator.isn(now, b, a));
        assert_ne!(first, IsnGenerator::new([8; 16]).isn(now, a, b));
        assert_eq!(generator.timestamp_offset(a, b), generator.timestamp_offset(a, b));
    }
}
