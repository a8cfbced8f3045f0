//! What the stack remembers for the worker about each socket: whose it is, in one word.

/// The word of a socket that belongs to no application any more.
pub(crate) const NOBODY: u64 = u64::MAX;

/// An application's place in the table, and its number for the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) app: u32,
    pub(crate) socket: u32,
}

impl Key {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.app) << 32 | u64::from(self.socket)
    }

    /// `None` for a socket of nobody, and for one that is not accepted yet.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != NOBODY).then_some(Self { app: (word >> 32) as u32, socket: word as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_the_word() {
        let key = Key { app: 3, socket: u32::MAX };
        assert_eq!(Key::from_word(key.to_word()), Some(key));
        assert_eq!(Key::from_word(NOBODY), None);
    }
}
