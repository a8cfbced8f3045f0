//! Hashing with a secret key, so that nobody outside can choose what collides.

use core::hash::{BuildHasher, Hasher};

use base::Rng;
use siphasher::sip::SipHasher13;

/// SipHash-1-3 with the stack's key, for the hash maps.
#[derive(Clone)]
pub(crate) struct KeyedState {
    hasher: SipHasher13,
}

impl KeyedState {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { hasher: SipHasher13::new_with_key(&key) }
    }

    /// The hash of some words.
    pub(crate) fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(bytes);
        hasher.finish()
    }
}

impl BuildHasher for KeyedState {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.hasher
    }
}

/// A key that nobody knows.
pub(crate) fn random_key(rng: &mut dyn Rng) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    key[8..].copy_from_slice(&rng.next_u64().to_le_bytes());
    key
}
