//! The bytes of a load: made by one end, judged by the other.

use std::io;

use super::Verify;
use crate::pattern;

/// A stream of bytes at one end, from its beginning.
pub(super) struct Data {
    verify: Verify,
    offset: u64,
    work: Sampler,
    right: bool,
    /// What reading came to; kept so that reading is not optimised away.
    folded: u64,
}

impl Data {
    pub(super) fn new(verify: Verify) -> Self {
        Self { verify, offset: 0, work: Sampler::default(), right: true, folded: 0 }
    }

    /// The next message begins.
    pub(super) fn restart(&mut self) {
        self.offset = 0;
    }

    /// Produces the next bytes of the stream.
    pub(super) fn make(&mut self, space: &mut [u8]) {
        if self.verify == Verify::Pattern {
            let offset = self.offset;
            self.work.time(space.len(), || pattern::fill(space, offset));
            self.offset += space.len() as u64;
        }
    }

    /// Takes the next bytes that came.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        match self.verify {
            Verify::No => {}
            Verify::Read => self.folded ^= self.work.time(bytes.len(), || std::hint::black_box(fold(bytes))),
            Verify::Pattern => {
                let offset = self.offset;
                self.right &= self.work.time(bytes.len(), || pattern::check(bytes, offset));
                self.offset += bytes.len() as u64;
            }
        }
    }

    /// Whether all that came was what had been sent and was compared; an error if it was compared and is not.
    pub(super) fn verdict(&self) -> io::Result<bool> {
        if self.right { Ok(self.verify == Verify::Pattern) } else { Err(wrong_bytes()) }
    }

    /// Processor time that went into this.
    pub(super) fn seconds(&self) -> f64 {
        self.work.seconds()
    }
}

/// Reads every byte.
fn fold(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let folded = words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word));
    rest.iter().fold(folded, |sum, byte| sum ^ u64::from(*byte))
}

/// Judges a short message: all its bytes are `tag`.
pub(super) fn check_message(verify: Verify, bytes: &[u8], tag: u8) -> io::Result<()> {
    match verify {
        Verify::No => Ok(()),
        Verify::Read => {
            std::hint::black_box(fold(bytes));
            Ok(())
        }
        Verify::Pattern if is_all(bytes, tag) => Ok(()),
        Verify::Pattern => Err(wrong_bytes()),
    }
}

/// Whether all bytes are `tag`. Blocks are looked at whole, which the compiler makes vector instructions of: what the
/// benchmark does itself should not count.
fn is_all(bytes: &[u8], tag: u8) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let differs = |bytes: &[u8]| bytes.iter().fold(0, |found, byte| found | (byte ^ tag)) != 0;
    !blocks.iter().any(|block| differs(block)) && !differs(rest)
}

fn wrong_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes are not those that were sent")
}

/// The processor time spent in some calls, estimated from a sample of them: reading a thread's processor clock is a system
/// call, and one in [`Sampler::EVERY`] calls is enough.
#[derive(Default)]
struct Sampler {
    calls: u64,
    bytes: u64,
    sampled_bytes: u64,
    sampled_nanoseconds: u64,
}

impl Sampler {
    const EVERY: u64 = 8;

    /// Makes a call that works on so many bytes.
    fn time<T>(&mut self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.calls += 1;
        self.bytes += bytes as u64;
        if !self.calls.is_multiple_of(Self::EVERY) {
            return work();
        }
        let began = thread_nanoseconds();
        let result = work();
        self.sampled_nanoseconds += thread_nanoseconds() - began;
        self.sampled_bytes += bytes as u64;
        result
    }

    /// The estimate for all calls.
    fn seconds(&self) -> f64 {
        let share = if self.sampled_bytes > 0 { self.bytes as f64 / self.sampled_bytes as f64 } else { 0.0 };
        self.sampled_nanoseconds as f64 / 1e9 * share
    }
}

/// What this thread has used of its processor.
fn thread_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_an_error_and_reading_alone_proves_nothing() {
        let (mut made, mut taken) = (Data::new(Verify::Pattern), Data::new(Verify::Pattern));
        let mut bytes = [0; 100];
        made.make(&mut bytes);
        taken.take(&bytes[..33]);
        taken.take(&bytes[33..]);
        assert!(taken.verdict().unwrap());
        made.make(&mut bytes);
        bytes[50] ^= 1;
        taken.take(&bytes);
        assert!(taken.verdict().is_err());
        let mut read = Data::new(Verify::Read);
        read.take(&bytes);
        assert!(!read.verdict().unwrap());
        assert!(check_message(Verify::Pattern, &[7, 7, 8], 7).is_err());
        assert!(check_message(Verify::Pattern, &[7, 7], 7).is_ok());
    }
}
