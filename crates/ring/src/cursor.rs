//! The other side's position in a byte stream, as far as it can be believed.

use crate::Corrupt;

/// A 64-bit stream offset that the other side moves forward in shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCursor {
    position: u64,
}

impl PeerCursor {
    /// The last position that was valid.
    pub fn position(self) -> u64 {
        self.position
    }

    /// Takes a copy of what stands in shared memory: it must not go back nor pass `limit`, which is never below the
    /// last position.
    pub fn advance(&mut self, copy: u64, limit: u64) -> Result<u64, Corrupt> {
        if copy < self.position || copy > limit {
            return Err(Corrupt);
        }
        self.position = copy;
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_only_goes_forward_and_not_too_far() {
        let mut cursor = PeerCursor::default();
        assert_eq!(cursor.advance(5, 10), Ok(5));
        assert_eq!(cursor.advance(5, 10), Ok(5));
        assert_eq!(cursor.advance(4, 10), Err(Corrupt));
        assert_eq!(cursor.advance(11, 10), Err(Corrupt));
        assert_eq!(cursor.advance(10, 10), Ok(10));
        assert_eq!(cursor.position(), 10);
    }
}
