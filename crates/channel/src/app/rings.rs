//! Send memory: who holds which of it, until the FEP needs it no more.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use stack::memory::{Budget, Member};

use super::channel::lock;
use crate::layout::Layout;
use crate::mapping::{Area, Lease, MemoryUse, WriteMapping};

/// The send area, and the rings of closed sockets from which the FEP may still transmit.
#[derive(Debug)]
pub(super) struct Rings {
    area: Area,
    /// How much of the area each socket may have.
    budget: Arc<Budget>,
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    /// Rings of sockets whose send side was dropped and whose RELEASED has not come, and what they count for.
    rings: HashMap<u32, Vec<(Vec<Lease>, Member)>>,
    /// How often each socket number was released.
    released: HashMap<u32, u32>,
}

impl Rings {
    pub(super) fn new(a: &Arc<WriteMapping>, layout: &Layout) -> Self {
        let area = Area::new(a.clone(), layout.send_area, layout.geometry.send_bytes as usize);
        Self { area, budget: Budget::new(layout.geometry.send_bytes), left: Mutex::default() }
    }

    pub(super) fn memory(&self) -> MemoryUse {
        self.area.memory()
    }

    pub(super) fn trim(&self, file: &OwnedFd) -> io::Result<u64> {
        self.area.trim(file)
    }

    /// One more socket that holds send memory.
    pub(super) fn join(&self) -> Member {
        Member::new(&self.budget)
    }

    pub(super) fn lease(&self, log2: u32) -> Option<Lease> {
        self.area.lease(log2)
    }

    /// Which use of a socket number this is.
    pub(super) fn use_of(&self, socket: u32) -> u32 {
        lock(&self.left).released.get(&socket).copied().unwrap_or(0)
    }

    /// Keeps rings until the use of the socket number that they belong to is released.
    pub(super) fn leave(&self, socket: u32, use_of: u32, rings: Vec<Lease>, member: Member) {
        let mut left = lock(&self.left);
        if left.released.get(&socket).copied().unwrap_or(0) == use_of {
            left.rings.entry(socket).or_default().push((rings, member));
        }
    }

    /// RELEASED came: the FEP transmits nothing any more from rings of this socket.
    pub(super) fn release(&self, socket: u32) {
        let mut left = lock(&self.left);
        left.rings.remove(&socket);
        let count = left.released.entry(socket).or_default();
        *count = count.wrapping_add(1);
    }
}
