//! Rings that were replaced by larger ones and may still be read.

use crate::mapping::Lease;

/// Each with the stream offset up to which its reader may be in it.
#[derive(Debug, Default)]
pub(crate) struct Retired(Vec<(u64, Lease)>);

impl Retired {
    /// A ring that may be read until its reader's cursor is at `until`.
    pub(crate) fn push(&mut self, until: u64, ring: Lease) {
        self.0.push((until, ring));
    }

    /// The reader's cursor is here: frees the rings that it has left. Whether any was.
    pub(crate) fn free_until(&mut self, cursor: u64) -> bool {
        let frees = self.0.first().is_some_and(|&(until, _)| until <= cursor);
        if frees {
            self.0.retain(|&(until, _)| until > cursor);
        }
        frees
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, ring)| ring.size()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees them all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Gives them away.
    pub(crate) fn take(&mut self) -> Vec<Lease> {
        self.0.drain(..).map(|(_, ring)| ring).collect()
    }
}
