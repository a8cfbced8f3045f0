//! The facade over atomics: what the protocols need of a shared word and of fences, from core or from loom.

use core::sync::atomic::Ordering;

/// A 32-bit word that both sides reach.
pub trait Word32 {
    /// Loads it.
    fn load(&self, order: Ordering) -> u32;
    /// Stores it.
    fn store(&self, value: u32, order: Ordering);
}

/// A family of atomics.
pub trait Atomics {
    /// A sequentially consistent fence: what stands before it in program order is seen by whoever then passes a fence.
    fn full_fence();
}

/// The processor's atomics.
#[derive(Clone, Copy, Debug)]
pub struct Native;

impl Atomics for Native {
    fn full_fence() {
        core::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl Word32 for core::sync::atomic::AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}

/// loom's atomics, which explore the interleavings.
#[cfg(loom)]
#[derive(Clone, Copy, Debug)]
pub struct Loom;

#[cfg(loom)]
impl Atomics for Loom {
    fn full_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
impl Word32 for loom::sync::atomic::AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
}
