//! The private allocator of a data area: blocks of a power of two pages, with coalescing.
//!
//! Blocks come from per-class lists, last in first out, so that warm memory is used again. A freed block joins its free
//! buddy at once; so an area that was taken apart into small rings can hold large ones again. Larger blocks are carved
//! from untouched space only when no list has one; the bookkeeping grows with the space that was ever carved.
//! Nothing of it lies in shared memory.

use crate::layout::{MAX_RING_LOG2, PAGE_LOG2};

/// The largest block is `1 << MAX_ORDER` pages.
const MAX_ORDER: u32 = MAX_RING_LOG2 - PAGE_LOG2;
const NONE: u32 = u32::MAX;

/// What is in use of an area, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Leased now.
    pub in_use: u64,
    /// The most that was ever leased at a time.
    pub high_water: u64,
    /// All there is.
    pub limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    /// Not the first page of a block.
    Inner,
    /// The first page of a leased block.
    Leased,
    /// The first page of a free block; `dirty`: it may hold memory that could be given back.
    Free { order: u32, dirty: bool },
}

#[derive(Clone, Copy, Debug)]
struct Node {
    page: Page,
    next: u32,
    previous: u32,
}

#[derive(Debug)]
pub(super) struct Buddy {
    /// One for each page that was carved.
    nodes: Vec<Node>,
    free: [u32; MAX_ORDER as usize + 1],
    pages: u32,
    in_use: u32,
    high_water: u32,
}

impl Buddy {
    /// An area of `pages` pages, all free.
    pub(super) fn new(pages: u32) -> Self {
        let free = [NONE; MAX_ORDER as usize + 1];
        Self { nodes: Vec::new(), free, pages, in_use: 0, high_water: 0 }
    }

    /// The first page of a block of `1 << order` pages.
    pub(super) fn allocate(&mut self, order: u32) -> Option<u32> {
        if order > MAX_ORDER {
            return None;
        }
        let (page, mut have, dirty) = loop {
            match (order..=MAX_ORDER).find(|&order| self.free[order as usize] != NONE) {
                Some(found) => {
                    let page = self.free[found as usize];
                    break (page, found, self.unlink(page));
                }
                None => self.carve(order)?,
            }
        };
        while have > order {
            have -= 1;
            self.link(page + (1 << have), have, dirty);
        }
        self.nodes[page as usize].page = Page::Leased;
        self.in_use += 1 << order;
        self.high_water = self.high_water.max(self.in_use);
        Some(page)
    }

    /// Takes back what `allocate(order)` gave.
    pub(super) fn free(&mut self, mut page: u32, mut order: u32) {
        assert_eq!(self.nodes[page as usize].page, Page::Leased, "only a leased block is given back");
        self.in_use -= 1 << order;
        while order < MAX_ORDER {
            let buddy = page ^ (1 << order);
            match self.nodes.get(buddy as usize).map(|node| node.page) {
                Some(Page::Free { order: same, .. }) if same == order => {}
                _ => break,
            }
            self.unlink(buddy);
            self.nodes[page.max(buddy) as usize].page = Page::Inner;
            page = page.min(buddy);
            order += 1;
        }
        self.link(page, order, true);
    }

    pub(super) fn memory(&self) -> MemoryUse {
        let bytes = |pages: u32| u64::from(pages) << PAGE_LOG2;
        MemoryUse { in_use: bytes(self.in_use), high_water: bytes(self.high_water), limit: bytes(self.pages) }
    }

    /// A free block of at least `pages` pages that was used since it was last taken from here: its first page and its
    /// number of pages. The caller gives its memory back; it stays free.
    pub(super) fn take_dirty(&mut self, pages: usize) -> Option<(u32, u32)> {
        let smallest = pages.next_power_of_two().trailing_zeros();
        for order in (smallest..=MAX_ORDER).rev() {
            let mut page = self.free[order as usize];
            while page != NONE {
                let node = &mut self.nodes[page as usize];
                if node.page == (Page::Free { order, dirty: true }) {
                    node.page = Page::Free { order, dirty: false };
                    return Some((page, 1 << order));
                }
                page = node.next;
            }
        }
        None
    }

    /// Adds the next untouched block, as large as alignment and the end of the area allow, to its list. `None` if what
    /// is left holds no block of `order`.
    fn carve(&mut self, order: u32) -> Option<()> {
        let start = self.nodes.len() as u32;
        let left = self.pages - start;
        if left == 0 {
            return None;
        }
        let aligned = start.trailing_zeros().min(MAX_ORDER);
        let fits = left.ilog2().min(aligned);
        if fits < order {
            return None;
        }
        let inner = Node { page: Page::Inner, next: NONE, previous: NONE };
        self.nodes.resize(self.nodes.len() + (1 << fits), inner);
        self.link(start, fits, false);
        Some(())
    }

    fn link(&mut self, page: u32, order: u32, dirty: bool) {
        let next = self.free[order as usize];
        self.nodes[page as usize] = Node { page: Page::Free { order, dirty }, next, previous: NONE };
        if next != NONE {
            self.nodes[next as usize].previous = page;
        }
        self.free[order as usize] = page;
    }

    /// Takes a free block from its list; whether it was dirty.
    fn unlink(&mut self, page: u32) -> bool {
        let node = self.nodes[page as usize];
        let Page::Free { order, dirty } = node.page else {
            unreachable!("only free blocks are on a list");
        };
        match node.previous {
            NONE => self.free[order as usize] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_aligned_disjoint_and_come_back(pages in 1u32..9000, steps in prop::collection::vec((0u32..=13, any::<u16>()), 1..300)) {
            let mut buddy = Buddy::new(pages);
            let mut leased: Vec<(u32, u32)> = Vec::new();
            for (order, pick) in steps {
                if pick & 1 == 0 || leased.is_empty() {
                    if let Some(page) = buddy.allocate(order) {
                        prop_assert!(page % (1 << order) == 0 && page + (1 << order) <= pages);
                        for &(other, size) in &leased {
                            prop_assert!(page + (1 << order) <= other || other + (1 << size) <= page);
                        }
                        leased.push((page, order));
                    }
                } else {
                    let (page, order) = leased.swap_remove(pick as usize / 2 % leased.len());
                    buddy.free(page, order);
                }
                let sum: u32 = leased.iter().map(|&(_, order)| 1 << order).sum();
                prop_assert_eq!(buddy.memory().in_use, u64::from(sum) << PAGE_LOG2);
            }
            for (page, order) in leased.drain(..) {
                buddy.free(page, order);
            }
            prop_assert_eq!(buddy.memory().in_use, 0);
            // Everything has coalesced: the largest block that fits is there again.
            let largest = pages.ilog2().min(MAX_ORDER);
            prop_assert!(buddy.allocate(largest).is_some());
        }
    }

    #[test]
    fn the_last_freed_is_the_next_given() {
        let mut buddy = Buddy::new(1 << 13);
        let blocks: Vec<u32> = (0..8).map(|_| buddy.allocate(3).unwrap()).collect();
        buddy.free(blocks[2], 3);
        buddy.free(blocks[5], 3);
        assert_eq!(buddy.allocate(3), Some(blocks[5]));
        assert_eq!(buddy.allocate(3), Some(blocks[2]));
    }

    #[test]
    fn used_blocks_are_given_back_once() {
        let mut buddy = Buddy::new(1 << 12);
        assert_eq!(buddy.take_dirty(16), None);
        let page = buddy.allocate(5).unwrap();
        assert_eq!(buddy.take_dirty(16), None);
        buddy.free(page, 5);
        assert_eq!(buddy.take_dirty(16), Some((0, 1 << 12)));
        assert_eq!(buddy.take_dirty(16), None);
    }
}
