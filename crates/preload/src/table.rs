//! From descriptor numbers to what this library knows about them: the descriptor table and the open descriptions
//! behind it.
//!
//! As in the kernel, several descriptors may share one description (`dup`), and a call in progress keeps its
//! description alive although another thread closes the descriptor meanwhile. A look-up of a descriptor that is
//! not ours, the common case by far, is one load and one branch. Otherwise it takes a reference: descriptions are
//! never given back to the allocator, only to a pool, so that reading the counter of one that was just closed is
//! harmless; after counting, the table is read again to see that it still names the same one.
//!
//! The table is wiped in a child made by `fork`: there every descriptor is the kernel's alone, and the parent's
//! channel stays untouched. A child made by `vfork` shares the parent's memory until it executes a program; calls
//! that change the table ask [`in_own_process`] first.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::description::Description;

/// Descriptors from here on are never ours: the kernel's default limit for a process.
const SIZE: usize = 1 << 20;

/// Page-aligned, so that the kernel can wipe it in a forked child.
#[repr(C, align(4096))]
struct Table([AtomicPtr<Slot>; SIZE]);

static TABLE: Table = Table([const { AtomicPtr::new(std::ptr::null_mut()) }; SIZE]);

/// One more than the highest descriptor that was ever in the table.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// The process that this memory belongs to; 0 until first needed.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The slots that are free. A forked child starts a pool of its own: the parent's may have been locked at the fork.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

type Pool = Mutex<Vec<&'static Slot>>;

/// The place of one description. It has a value while its reference count is not zero.
struct Slot {
    references: AtomicUsize,
    /// Counts the descriptions that had this place.
    generation: AtomicU64,
    value: UnsafeCell<MaybeUninit<Description>>,
}

// SAFETY: `Description` is Send and Sync; the value is written before the count leaves zero and dropped after it
// reached zero, each by one thread alone.
unsafe impl Sync for Slot {}

/// A counted reference to a description.
pub(crate) struct Held(&'static Slot);

impl Held {
    /// A new description that no descriptor names yet.
    pub(crate) fn new(description: Description) -> Self {
        let slot = lock_pool().pop().unwrap_or_else(|| {
            Box::leak(Box::new(Slot {
                references: AtomicUsize::new(0),
                generation: AtomicU64::new(0),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }))
        });
        // SAFETY: the slot came from the pool (or is new): its count is zero, and nobody else has it.
        unsafe { (*slot.value.get()).write(description) };
        slot.generation.fetch_add(1, Ordering::Relaxed);
        slot.references.store(1, Ordering::Release);
        Self(slot)
    }

    /// A reference that does not keep the description alive.
    pub(crate) fn downgrade(&self) -> Weak {
        Weak { slot: self.0, generation: self.0.generation.load(Ordering::Relaxed) }
    }
}

/// Names a description without keeping it alive. Two are equal if they name the same one.
#[derive(Clone, Copy)]
pub(crate) struct Weak {
    slot: &'static Slot,
    generation: u64,
}

impl Weak {
    /// The description, if it still exists.
    pub(crate) fn upgrade(self) -> Option<Held> {
        let held = self.slot.try_hold()?;
        (self.slot.generation.load(Ordering::Relaxed) == self.generation).then_some(held)
    }

    /// What makes it equal to another.
    pub(crate) fn id(self) -> (usize, u64) {
        (std::ptr::from_ref(self.slot).addr(), self.generation)
    }
}

impl Slot {
    /// A reference, if there is a description.
    fn try_hold(&'static self) -> Option<Held> {
        self.references
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| (count != 0).then(|| count + 1))
            .is_ok()
            .then(|| Held(self))
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.0.references.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Deref for Held {
    type Target = Description;

    fn deref(&self) -> &Description {
        // SAFETY: the count is not zero while this lives, so the value is there.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: the last reference is gone and the count is zero, so nobody else can get to the value.
            unsafe { (*self.0.value.get()).assume_init_drop() };
            lock_pool().push(self.0);
        }
    }
}

fn lock_pool() -> MutexGuard<'static, Vec<&'static Slot>> {
    let mut pool = POOL.load(Ordering::Acquire);
    if pool.is_null() {
        let fresh = Box::into_raw(Box::<Pool>::default());
        pool = match POOL.compare_exchange(pool, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(winner) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(fresh) });
                winner
            }
        };
    }
    // SAFETY: a pool that was published lives for ever.
    unsafe { &*pool }.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(fd: c_int) -> Option<&'static AtomicPtr<Slot>> {
    TABLE.0.get(fd as usize)
}

/// The description of a descriptor, if it is ours.
#[inline]
pub(crate) fn find(fd: c_int) -> Option<Held> {
    let entry = TABLE.0.get(fd as usize)?;
    let slot = entry.load(Ordering::Acquire);
    if slot.is_null() { None } else { hold(entry, slot) }
}

/// Whether a descriptor is ours, without taking a reference.
#[inline]
pub(crate) fn contains(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| !entry.load(Ordering::Relaxed).is_null())
}

fn hold(entry: &AtomicPtr<Slot>, mut slot: *mut Slot) -> Option<Held> {
    while !slot.is_null() {
        // SAFETY: slots live for ever.
        let candidate: &'static Slot = unsafe { &*slot };
        let held = candidate.try_hold();
        let again = entry.load(Ordering::Acquire);
        if held.is_some() && again == slot {
            return held;
        }
        slot = again;
    }
    None
}

/// Makes `fd` name `held`. What it named before is given back, to be dropped by the caller.
pub(crate) fn insert(fd: c_int, held: Held) -> Option<Held> {
    let Some(entry) = entry(fd) else { return Some(held) };
    let slot = std::ptr::from_ref(held.0).cast_mut();
    std::mem::forget(held);
    HIGH_WATER.fetch_max(fd as usize + 1, Ordering::Relaxed);
    take(entry.swap(slot, Ordering::AcqRel))
}

/// Makes `fd` name nothing of ours; what it named is given back.
pub(crate) fn remove(fd: c_int) -> Option<Held> {
    let entry = entry(fd)?;
    if entry.load(Ordering::Relaxed).is_null() {
        return None;
    }
    take(entry.swap(std::ptr::null_mut(), Ordering::AcqRel))
}

/// The reference that a table entry held.
fn take(slot: *mut Slot) -> Option<Held> {
    // SAFETY: slots live for ever, and the entry's reference goes over to the caller.
    (!slot.is_null()).then(|| Held(unsafe { &*slot }))
}

/// Our descriptors from `first` to `last`, both included.
pub(crate) fn within(first: usize, last: usize) -> impl Iterator<Item = c_int> {
    let end = HIGH_WATER.load(Ordering::Relaxed).min(last.saturating_add(1));
    (first..end).map(|fd| fd as c_int).filter(|fd| contains(*fd))
}

/// Whether this is the process that filled the table, and not a child between `vfork` and `exec`, which must not
/// change it although it could.
pub(crate) fn in_own_process() -> bool {
    let process = current_process();
    match OWNER.load(Ordering::Relaxed) {
        0 => {
            OWNER.store(process, Ordering::Relaxed);
            true
        }
        owner => owner == process,
    }
}

fn current_process() -> i32 {
    // SAFETY: no arguments; by the system call, since a C library may remember its parent's answer.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// Tells the kernel to give forked children an empty table. Called once, before the first entry.
pub(crate) fn wipe_on_fork() {
    // SAFETY: the range is this static's own pages.
    unsafe {
        libc::madvise(
            std::ptr::from_ref(&TABLE).cast_mut().cast(),
            size_of::<Table>(),
            libc::MADV_WIPEONFORK,
        );
    }
}

/// In a forked child: forgets everything, without touching what the parent still uses. Entries are overwritten
/// whether or not the kernel has wiped them.
pub(crate) fn forget_all() {
    for fd in 0..HIGH_WATER.swap(0, Ordering::Relaxed) {
        TABLE.0[fd].store(std::ptr::null_mut(), Ordering::Relaxed);
    }
    POOL.store(std::ptr::null_mut(), Ordering::Release);
    OWNER.store(current_process(), Ordering::Relaxed);
}
