//! [`Relay`]: the leases of this process that wait, and those that were let in by a message.
//!
//! A lock that goes from one task of a process to another need not wait for the store to say so. Who
//! is let in is told its *heir*: the waiter of the same process to whom the record
//! [promises](crate::record::Record::promise) the lock. When the holder gives the lock back it lets
//! its heir in first, and writes the release then. In between the record has the old holder, and lets
//! in nobody but the heir, with the fence that was promised. What can happen meanwhile:
//!
//! * **the release is not written**, because the connection is cut or its caller was cancelled: then
//!   it is repeated by the lease id, as every release is. The heir is let in once, by the first try.
//! * **the heir is faster**, and asks for something before the release is written: it writes that
//!   release first, which is known as its *predecessor's*.
//! * **the heir has given up**: it does not wait any more, and nobody is let in.
//! * **the old holder was robbed** without knowing it: then it passed on what was not its own. The
//!   answer to its release tells, and the heir is [severed](Relay::sever): its guard is told.

use std::collections::HashMap;

use crate::fence::Fence;
use crate::id::LeaseId;

/// Whom a holder lets in, and with which fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heir {
    /// Its lease.
    pub lease: LeaseId,
    /// The fence that it was promised.
    pub fence: Fence,
}

/// What is known about a lease that was let in by a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    /// Who let it in, until it is known that this is written.
    pub predecessor: Option<LeaseId>,
    /// Whom it lets in.
    pub heir: Option<Heir>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    fence: Fence,
    tenure: Tenure,
}

#[derive(Debug)]
struct Held {
    grant: Grant,
    /// It had no right to enter, or has none any more.
    severed: bool,
}

/// Who waits and who is inside.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// Who waits in a queue, and the grant that was told since.
    awaited: HashMap<LeaseId, Option<Grant>>,
    held: HashMap<LeaseId, Held>,
}

impl Relay {
    /// From now on a grant to `lease` is kept for it.
    pub(crate) fn open(&mut self, lease: LeaseId) {
        self.awaited.entry(lease).or_default();
    }

    pub(crate) fn is_open(&self, lease: LeaseId) -> bool {
        self.awaited.contains_key(&lease)
    }

    /// Forgets that `lease` waits.
    pub(crate) fn close(&mut self, lease: LeaseId) {
        self.awaited.remove(&lease);
    }

    pub(crate) fn granted(&self, lease: LeaseId) -> Option<Fence> {
        Some((*self.awaited.get(&lease)?)?.fence)
    }

    /// Takes in that `lease` was granted the lock and that this is written, or that it was not.
    /// Returns whether one that is inside learned that it must not be.
    pub(crate) fn hear(
        &mut self,
        lease: LeaseId,
        fence: Option<Fence>,
        heir: Option<Heir>,
    ) -> bool {
        let grant = fence.map(|fence| Grant { fence, tenure: Tenure { predecessor: None, heir } });
        if grant.is_none() {
            self.disinherit(lease);
        }
        if let Some(awaited) = self.awaited.get_mut(&lease) {
            // This says more than that its predecessor let it in.
            *awaited = grant;
            return false;
        }
        match (self.held.get_mut(&lease), grant) {
            (None, _) => false,
            // What it was let in by is written.
            (Some(held), Some(grant)) if held.grant.fence == grant.fence => {
                held.grant = grant;
                false
            }
            // It was let in with a promise that was not kept.
            (Some(_), _) => self.sever(lease),
        }
    }

    /// The fence with which `lease` was let in since it waits, if it was. It is inside then.
    pub(crate) fn enter(&mut self, lease: LeaseId) -> Option<Fence> {
        let grant = (*self.awaited.get(&lease)?)?;
        self.awaited.remove(&lease);
        self.held.insert(lease, Held { grant, severed: false });
        Some(grant.fence)
    }

    pub(crate) fn predecessor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        self.held.get(&lease)?.grant.tenure.predecessor
    }

    /// Whom `lease` has let in, if it is not known yet that this is written.
    pub(crate) fn successor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        let by = |grant: &Grant| grant.tenure.predecessor == Some(lease);
        let inside = self.held.iter().find(|(_, held)| by(&held.grant));
        let entering = || self.awaited.iter().find(|(_, grant)| grant.as_ref().is_some_and(by));
        inside.map(|(lease, _)| lease).or_else(|| entering().map(|(lease, _)| lease)).copied()
    }

    /// What `lease` was let in by is written.
    pub(crate) fn confirm(&mut self, lease: LeaseId) {
        let inside = self.held.get_mut(&lease).map(|held| &mut held.grant);
        let entering = self.awaited.get_mut(&lease).and_then(Option::as_mut);
        if let Some(grant) = inside.or(entering) {
            grant.tenure.predecessor = None;
        }
    }

    /// `lease` gives its lock back, and lets its heir in if that waits. Returns what was known about
    /// it, with the heir only if it was let in.
    pub(crate) fn pass_on(&mut self, lease: LeaseId) -> Tenure {
        self.awaited.remove(&lease);
        let Some(Held { grant: Grant { tenure, .. }, severed }) = self.held.remove(&lease) else {
            return Tenure::default();
        };
        let waits = |heir: &Heir| matches!(self.awaited.get(&heir.lease), Some(None));
        let heir = tenure.heir.filter(|heir| !severed && waits(heir));
        if let Some(Heir { lease: next, fence }) = heir {
            let tenure = Tenure { predecessor: Some(lease), heir: None };
            self.awaited.insert(next, Some(Grant { fence, tenure }));
        }
        Tenure { heir, ..tenure }
    }

    /// `lease` is not to be let in by who would: it was robbed of its place.
    pub(crate) fn disinherit(&mut self, lease: LeaseId) {
        for held in self.held.values_mut() {
            let heir = &mut held.grant.tenure.heir;
            *heir = heir.filter(|heir| heir.lease != lease);
        }
    }

    /// From now on `lease` lets in nobody by itself, whatever is heard.
    pub(crate) fn leave(&mut self, lease: LeaseId) {
        if let Some(Held { severed: false, .. }) = self.held.get(&lease) {
            self.held.remove(&lease);
        }
    }

    /// `lease` has no right to be inside. One that has not entered does not. Returns whether one that
    /// is inside has to be told.
    pub(crate) fn sever(&mut self, lease: LeaseId) -> bool {
        if let Some(grant) = self.awaited.get_mut(&lease) {
            *grant = None;
        }
        let held = self.held.get_mut(&lease);
        held.is_some_and(|held| !std::mem::replace(&mut held.severed, true))
    }

    pub(crate) fn is_severed(&self, lease: LeaseId) -> bool {
        self.held.get(&lease).is_some_and(|held| held.severed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(number: u128) -> LeaseId {
        LeaseId::from_u128(number)
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn heir(number: u128, its_fence: u64) -> Option<Heir> {
        Some(Heir { lease: lease(number), fence: fence(its_fence) })
    }

    /// 1 is inside with fence 7 and lets in 2 with 8; 2 and 3 wait.
    fn promised() -> Relay {
        let mut relay = Relay::default();
        (1..=3).for_each(|number| relay.open(lease(number)));
        assert!(!relay.hear(lease(1), Some(fence(7)), heir(2, 8)));
        assert_eq!(relay.enter(lease(1)), Some(fence(7)));
        relay
    }

    /// The same, and 1 has let 2 in, which has entered.
    fn passed_on() -> Relay {
        let mut relay = promised();
        assert_eq!(relay.pass_on(lease(1)), Tenure { predecessor: None, heir: heir(2, 8) });
        assert_eq!(relay.enter(lease(2)), Some(fence(8)));
        relay
    }

    #[test]
    fn an_heir_enters_once_and_knows_who_let_it_in() {
        let mut relay = passed_on();
        assert_eq!(relay.predecessor_of(lease(2)), Some(lease(1)));
        assert_eq!(relay.enter(lease(2)), None, "it is inside");
        assert_eq!(relay.pass_on(lease(1)), Tenure::default(), "it has left");
        let mut relay = promised();
        assert_eq!(relay.enter(lease(2)), None, "not before it is let in");
        relay.pass_on(lease(1));
        assert_eq!(relay.successor_of(lease(1)), Some(lease(2)), "it is about to enter");
        assert_eq!(relay.granted(lease(2)), Some(fence(8)));
        relay.close(lease(2));
        assert_eq!(relay.enter(lease(2)), None, "it gave up");
        assert_eq!(relay.successor_of(lease(1)), None);
    }

    #[test]
    fn nobody_is_let_in_who_does_not_wait_or_was_told_already() {
        let mut relay = promised();
        relay.close(lease(2));
        assert_eq!(relay.pass_on(lease(1)), Tenure::default());
        assert_eq!(relay.enter(lease(2)), None);
        let mut relay = promised();
        relay.hear(lease(2), Some(fence(8)), heir(3, 9));
        assert_eq!(relay.pass_on(lease(1)), Tenure::default());
        assert_eq!(relay.enter(lease(2)), Some(fence(8)));
        assert_eq!(relay.predecessor_of(lease(2)), None, "that was written");
        assert_eq!(relay.pass_on(lease(2)).heir, heir(3, 9));
    }

    #[test]
    fn that_it_is_written_is_heard_before_and_after_entering() {
        for early in [true, false] {
            let mut relay = promised();
            relay.pass_on(lease(1));
            if early {
                relay.hear(lease(2), Some(fence(8)), heir(3, 9));
            }
            assert_eq!(relay.enter(lease(2)), Some(fence(8)));
            relay.hear(lease(2), Some(fence(8)), heir(3, 9));
            assert_eq!(relay.predecessor_of(lease(2)), None, "early: {early}");
            let passed = Tenure { predecessor: None, heir: heir(3, 9) };
            assert_eq!(relay.pass_on(lease(2)), passed, "early: {early}");
        }
        let mut relay = passed_on();
        relay.confirm(lease(2));
        assert_eq!((relay.predecessor_of(lease(2)), relay.successor_of(lease(1))), (None, None));
        assert_eq!(relay.pass_on(lease(2)), Tenure::default());
    }

    #[test]
    fn one_that_changes_or_was_robbed_lets_in_nobody() {
        let mut relay = promised();
        relay.leave(lease(1));
        relay.hear(lease(1), Some(fence(7)), heir(2, 8));
        assert_eq!(relay.pass_on(lease(1)), Tenure::default(), "not even if it hears of one later");
        let mut relay = promised();
        assert!(relay.hear(lease(1), None, None));
        assert_eq!(relay.pass_on(lease(1)), Tenure::default());
        assert_eq!(relay.enter(lease(2)), None);
    }

    #[test]
    fn an_heir_that_was_robbed_of_its_place_is_not_let_in() {
        let mut relay = promised();
        assert!(!relay.hear(lease(2), None, None));
        assert_eq!(relay.pass_on(lease(1)), Tenure::default());
        assert_eq!(relay.enter(lease(2)), None);
        assert!(relay.is_open(lease(2)), "it asks, and is told");
    }

    #[test]
    fn who_has_no_right_to_be_inside_is_told_until_it_leaves() {
        for how in 0..3 {
            let mut relay = passed_on();
            assert!(!relay.is_severed(lease(2)));
            let told = match how {
                0 => relay.hear(lease(2), None, None),
                1 => relay.hear(lease(2), Some(fence(9)), None),
                _ => relay.sever(lease(2)),
            };
            assert!(told && relay.is_severed(lease(2)), "{how}");
            assert!(!relay.sever(lease(2)), "it was told");
            relay.leave(lease(2));
            assert!(relay.is_severed(lease(2)), "{how}");
            relay.pass_on(lease(2));
            assert!(!relay.is_severed(lease(2)), "{how}");
        }
        let mut relay = promised();
        relay.pass_on(lease(1));
        assert!(!relay.sever(lease(2)), "nobody is inside");
        assert_eq!(relay.enter(lease(2)), None, "it does not enter");
        assert!(relay.is_open(lease(2)), "it waits on");
    }
}
