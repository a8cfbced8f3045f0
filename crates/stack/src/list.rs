//! Doubly linked lists through the sockets themselves: joining, leaving and taking the first cost O(1) and no memory.

/// No element.
pub(crate) const NIL: u32 = u32::MAX;
const UNLINKED: u32 = u32::MAX - 1;

/// The ends of a list; the links stand in the elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

/// An element's place in a list of one purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    next: u32,
    /// Of the first element `NIL`; of one that is in no list, `UNLINKED`.
    prev: u32,
}

/// Whatever can find an element's link by its index.
pub(crate) trait Links {
    /// The link of the element at `index`, which exists.
    fn link(&mut self, index: u32) -> &mut Link;
}

impl Link {
    pub(crate) const fn new() -> Self {
        Self { next: NIL, prev: UNLINKED }
    }

    /// Whether the element is in a list.
    pub(crate) const fn is_linked(&self) -> bool {
        self.prev != UNLINKED
    }
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { head: NIL, tail: NIL }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    pub(crate) const fn front(&self) -> Option<u32> {
        if self.head == NIL { None } else { Some(self.head) }
    }

    /// Puts an element at the end, unless it is in a list already.
    pub(crate) fn push_back(&mut self, links: &mut impl Links, index: u32) {
        let link = links.link(index);
        if link.prev != UNLINKED {
            return;
        }
        *link = Link { next: NIL, prev: self.tail };
        if self.tail == NIL {
            self.head = index;
        } else {
            links.link(self.tail).next = index;
        }
        self.tail = index;
    }

    /// Takes the first element.
    pub(crate) fn pop_front(&mut self, links: &mut impl Links) -> Option<u32> {
        let index = self.front()?;
        self.remove(links, index);
        Some(index)
    }

    /// Takes an element out of this list, in which it must be, if it is in one.
    pub(crate) fn remove(&mut self, links: &mut impl Links, index: u32) {
        let Link { next, prev } = core::mem::replace(links.link(index), Link::new());
        if prev == UNLINKED {
            return;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            links.link(next).prev = prev;
        }
        if prev == NIL {
            self.head = next;
        } else {
            links.link(prev).next = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Links for Vec<Link> {
        fn link(&mut self, index: u32) -> &mut Link {
            &mut self[index as usize]
        }
    }

    #[test]
    fn elements_come_in_order_and_leave_from_anywhere() {
        let mut links = vec![Link::new(); 5];
        let mut list = List::new();
        for index in 0..5 {
            list.push_back(&mut links, index);
            list.push_back(&mut links, index);
        }
        for index in [0, 2, 4, 2] {
            list.remove(&mut links, index);
        }
        list.push_back(&mut links, 0);
        let order: Vec<u32> = core::iter::from_fn(|| list.pop_front(&mut links)).collect();
        assert_eq!(order, [1, 3, 0]);
        assert!(list.is_empty());
    }
}
