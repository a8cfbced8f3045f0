//! The operating system's monotonic clock and entropy: the only place where the worker reads either.

use std::io;

use base::{Instant, SeededRng};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// `N` bytes of the operating system's entropy.
pub fn entropy<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// A generator for ports, identifiers and jitter, seeded with 256 bits from the operating system.
pub fn random_source() -> io::Result<SeededRng> {
    entropy().map(SeededRng::from_seed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn time_goes_on_and_entropy_differs() {
        let first = super::now();
        assert!(super::now() >= first);
        assert_ne!(super::entropy::<16>().unwrap(), super::entropy::<16>().unwrap());
    }
}
