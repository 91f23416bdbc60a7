//! [`Shelf`]: the records of locks as they were read or written last.

use std::collections::HashMap;

use sprag_core::clock::Moment;
use sprag_core::record::Record;
use sprag_core::{Fence, LockName};

use crate::oid::Oid;

/// How many records are kept of locks that nobody of this process uses.
const MAX_COPIES: usize = 10_000;

/// One lock as it was at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) tip: Option<Oid>,
    pub(crate) record: Record,
    /// When the read was sent, or the write that made it.
    pub(crate) as_of: Moment,
    /// When we wrote it, if we did.
    pub(crate) written: Option<Moment>,
}

/// A swap compares the tip, so what is decided by a copy and written is right, be the copy old.
/// What is only answered needs one that is new enough.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    copies: HashMap<LockName, Copy>,
    /// The largest fences seen: they do not go back if somebody deletes a reference.
    fences: HashMap<LockName, Fence>,
}

impl Shelf {
    pub(crate) fn get(&self, name: &LockName) -> Option<&Copy> {
        self.copies.get(name)
    }

    pub(crate) fn put(&mut self, name: LockName, copy: Copy) {
        if self.copies.len() >= MAX_COPIES && !self.copies.contains_key(&name) {
            self.copies.retain(|_, copy| !copy.record.is_free());
        }
        if copy.record.fence > Fence::ZERO {
            let fence = self.fences.entry(name.clone()).or_insert(copy.record.fence);
            *fence = (*fence).max(copy.record.fence);
        }
        // A read that was slow must not replace what was written meanwhile.
        if self.copies.get(&name).is_none_or(|known| known.as_of <= copy.as_of) {
            self.copies.insert(name, copy);
        }
    }

    pub(crate) fn forget(&mut self, name: &LockName) {
        self.copies.remove(name);
    }

    pub(crate) fn forget_all(&mut self) {
        self.copies.clear();
    }

    /// The least number that the next fence may have.
    pub(crate) fn fence_floor(&self, name: &LockName) -> u64 {
        self.fences.get(name).map_or(0, |fence| fence.get() + 1)
    }
}
