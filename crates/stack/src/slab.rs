//! A table of slots in pages: stable indices, generations against stale identifiers, memory given back.
//!
//! A `Vec` of sockets would double by copying: hundreds of megabytes moved at once, and up to half of its memory
//! unused. Pages never move, waste at most one page, and an empty page is freed. Every operation is O(1).

const PAGE_BITS: u32 = 6;
/// Slots in a page.
pub(crate) const PAGE_SLOTS: usize = 1 << PAGE_BITS;
const NONE: u32 = u32::MAX;

/// Where a value stands, and which of the values that stood there over time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// Drawn anew for every value.
    pub generation: u32,
}

enum Slot<T> {
    Used { generation: u32, value: T },
    Free { next: u32 },
}

struct Page<T> {
    slots: Box<[Slot<T>]>,
    used: u32,
    free: u32,
    /// Links of the list of pages that have a free slot.
    next: u32,
    prev: u32,
}

/// The table.
pub(crate) struct Slab<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    /// First page that has a free slot.
    open: u32,
    /// Page numbers that have no page.
    vacant: Vec<u32>,
    /// An empty page kept against flapping at the boundary.
    empty_pages: u32,
    len: usize,
    generation: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), open: NONE, vacant: Vec::new(), empty_pages: 0, len: 0, generation: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// No value stands at this index or a higher one.
    pub(crate) fn slots(&self) -> u32 {
        (self.pages.len() * PAGE_SLOTS) as u32
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        if self.open == NONE {
            self.add_page();
        }
        let number = self.open;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let page = self.page_mut(number);
        let position = page.free;
        let slot = core::mem::replace(&mut page.slots[position as usize], Slot::Used { generation, value });
        let Slot::Free { next } = slot else { unreachable!("the free list holds free slots only") };
        page.free = next;
        page.used += 1;
        let (was_empty, full) = (page.used == 1, page.free == NONE);
        if was_empty {
            self.empty_pages -= 1;
        }
        if full {
            self.unlink(number);
        }
        self.len += 1;
        Key { index: number << PAGE_BITS | position, generation }
    }

    /// Takes the value out of the slot at `index`.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        self.get_index(index)?;
        let number = index >> PAGE_BITS;
        let position = index & (PAGE_SLOTS as u32 - 1);
        let page = self.page_mut(number);
        let next = page.free;
        let Slot::Used { value, .. } =
            core::mem::replace(&mut page.slots[position as usize], Slot::Free { next })
        else {
            return None;
        };
        let was_full = page.free == NONE;
        page.free = position;
        page.used -= 1;
        let empty = page.used == 0;
        if was_full {
            self.link(number);
        }
        self.len -= 1;
        if empty {
            self.on_page_empty(number);
        }
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.slot(key.index)? {
            Slot::Used { generation, value } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slot_mut(key.index)? {
            Slot::Used { generation, value } if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_index(&self, index: u32) -> Option<&T> {
        match self.slot(index)? {
            Slot::Used { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn get_index_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.slot_mut(index)? {
            Slot::Used { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// The values at two indices.
    pub(crate) fn pair_mut(&mut self, one: u32, other: u32) -> Option<[&mut T; 2]> {
        let page_of = |index: u32| (index >> PAGE_BITS) as usize;
        let slot_of = |index: u32| index as usize & (PAGE_SLOTS - 1);
        let slots = if page_of(one) == page_of(other) {
            let page = self.pages.get_mut(page_of(one))?.as_mut()?;
            page.slots.get_disjoint_mut([slot_of(one), slot_of(other)]).ok()?
        } else {
            let [first, second] = self.pages.get_disjoint_mut([page_of(one), page_of(other)]).ok()?;
            let (first, second) = (first.as_mut()?, second.as_mut()?);
            [first.slots.get_mut(slot_of(one))?, second.slots.get_mut(slot_of(other))?]
        };
        match slots {
            [Slot::Used { value: one, .. }, Slot::Used { value: other, .. }] => Some([one, other]),
            _ => None,
        }
    }

    /// The key of what stands at `index`.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        match self.slot(index)? {
            Slot::Used { generation, .. } => Some(Key { index, generation: *generation }),
            Slot::Free { .. } => None,
        }
    }

    /// Every value; for status only, never on the data path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.pages.iter().zip(0u32..).flat_map(|(page, number)| {
            page.iter().flat_map(move |page| {
                page.slots.iter().zip(0u32..).filter_map(move |(slot, position)| match slot {
                    Slot::Used { generation, value } => {
                        Some((Key { index: number << PAGE_BITS | position, generation: *generation }, value))
                    }
                    Slot::Free { .. } => None,
                })
            })
        })
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let page = self.pages.get((index >> PAGE_BITS) as usize)?.as_ref()?;
        page.slots.get((index as usize) & (PAGE_SLOTS - 1))
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        let page = self.pages.get_mut((index >> PAGE_BITS) as usize)?.as_mut()?;
        page.slots.get_mut((index as usize) & (PAGE_SLOTS - 1))
    }

    fn page_mut(&mut self, number: u32) -> &mut Page<T> {
        self.pages[number as usize].as_mut().expect("only existing pages are linked or hold values")
    }

    fn add_page(&mut self) {
        let last = PAGE_SLOTS as u32 - 1;
        let slots = (0..=last).map(|i| Slot::Free { next: if i == last { NONE } else { i + 1 } }).collect();
        let page = Box::new(Page { slots, used: 0, free: 0, next: NONE, prev: NONE });
        let number = match self.vacant.pop() {
            Some(number) => {
                self.pages[number as usize] = Some(page);
                number
            }
            None => {
                self.pages.push(Some(page));
                self.pages.len() as u32 - 1
            }
        };
        self.empty_pages += 1;
        self.link(number);
    }

    fn on_page_empty(&mut self, number: u32) {
        self.empty_pages += 1;
        if self.empty_pages > 1 {
            self.unlink(number);
            self.pages[number as usize] = None;
            self.vacant.push(number);
            self.empty_pages -= 1;
        }
        if self.len == 0 {
            self.vacant.shrink_to(PAGE_SLOTS);
        }
    }

    fn link(&mut self, number: u32) {
        let head = self.open;
        if head != NONE {
            self.page_mut(head).prev = number;
        }
        let page = self.page_mut(number);
        page.next = head;
        page.prev = NONE;
        self.open = number;
    }

    fn unlink(&mut self, number: u32) {
        let page = self.page_mut(number);
        let (next, prev) = (page.next, page.prev);
        if next != NONE {
            self.page_mut(next).prev = prev;
        }
        if prev == NONE {
            self.open = next;
        } else {
            self.page_mut(prev).next = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Rng, SeededRng};

    #[test]
    fn a_key_finds_its_value_and_no_later_one() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.get(first), Some(&"first"));
        assert_eq!(slab.remove(first.index), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.index, first.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.remove(second.index), Some("second"));
        assert_eq!(slab.remove(second.index), None);
    }

    #[test]
    fn two_values_are_held_at_once_wherever_they_stand() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..3 * PAGE_SLOTS as u32).map(|number| slab.insert(number)).collect();
        let last = keys.last().unwrap().index;
        for (one, other) in [(0, 1), (1, 0), (3, last), (last, 3)] {
            assert_eq!(slab.pair_mut(one, other).map(|pair| pair.map(|value| *value)), Some([one, other]));
        }
        assert_eq!(slab.pair_mut(5, 5), None, "one value is not two");
        assert_eq!(slab.pair_mut(5, last + 1), None);
        slab.remove(5);
        assert_eq!(slab.pair_mut(5, 6), None);
    }

    #[test]
    fn random_churn_agrees_with_a_map_and_pages_go_back() {
        let mut rng = SeededRng::new(42);
        let mut slab = Slab::new();
        let mut model = Vec::new();
        for step in 0..50_000u64 {
            if model.is_empty() || rng.below(100) < if step < 25_000 { 60 } else { 40 } {
                model.push((slab.insert(step), step));
            } else {
                let (key, value) = model.swap_remove(rng.below(model.len() as u64) as usize);
                assert_eq!(slab.get(key), Some(&value));
                assert_eq!(slab.remove(key.index), Some(value));
            }
            assert_eq!(slab.len(), model.len());
        }
        let mut all: Vec<_> = slab.iter().map(|(key, value)| (key, *value)).collect();
        all.sort();
        model.sort();
        assert_eq!(all, model);
        for (key, _) in model {
            slab.remove(key.index);
        }
        assert_eq!(slab.pages.iter().flatten().count(), 1);
    }
}
