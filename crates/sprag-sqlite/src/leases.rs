//! [`Leases`]: what this process has heard about its leases.

use std::collections::HashMap;

use sprag_core::{Fence, LeaseId};

use crate::baton::{Heir, Mark};
use crate::message::Message;
use crate::queue::Place;

/// The leases that wait, and those that were let in by a message.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    awaited: HashMap<LeaseId, Awaited>,
    held: HashMap<LeaseId, Tenure>,
}

/// What is known about a lease that waits in a queue.
#[derive(Debug)]
struct Awaited {
    /// Where it waits.
    place: Place,
    /// The grant that was told since.
    grant: Option<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    fence: Fence,
    /// Who passed it on without having written it, and the mark for which that counts.
    baton: Option<(LeaseId, Mark)>,
    heir: Option<Heir>,
}

/// What is known about a lease that holds a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tenure {
    /// Who let it in, until it is heard that this is written.
    pub(crate) predecessor: Option<LeaseId>,
    /// Whom it will let in.
    pub(crate) heir: Option<Heir>,
}

impl Leases {
    /// From now on a grant to `lease`, which waits in the queue, is kept for it.
    pub(crate) fn await_grant(&mut self, lease: LeaseId, place: Place) {
        self.awaited.entry(lease).or_insert(Awaited { place, grant: None });
    }

    /// Where `lease` waits.
    pub(crate) fn place_of(&self, lease: LeaseId) -> Option<Place> {
        self.awaited.get(&lease).map(|awaited| awaited.place)
    }

    /// Takes in a message.
    pub(crate) fn hear(&mut self, message: Message) {
        match message {
            Message::Told { lease, grant, heir } => {
                if let Some(awaited) = self.awaited.get_mut(&lease) {
                    awaited.grant = grant.map(|fence| Grant { fence, baton: None, heir });
                } else if grant.is_none() {
                    // It is lost, and has nothing to pass on.
                    self.held.remove(&lease);
                } else if let Some(tenure) = self.held.get_mut(&lease) {
                    // What it was let in by is written.
                    *tenure = Tenure { predecessor: None, heir };
                }
            }
            Message::Baton { lease, fence, from, mark } => {
                // One that is written already says more.
                if let Some(Awaited { grant: grant @ None, .. }) = self.awaited.get_mut(&lease) {
                    *grant = Some(Grant { fence, baton: Some((from, mark)), heir: None });
                }
            }
        }
    }

    /// The fence with which `lease` was granted since it waits, if that was told. A baton counts
    /// if nobody used force: `mark` tells, at the moment of entering.
    pub(crate) fn enter(
        &mut self,
        lease: LeaseId,
        mark: impl FnOnce() -> Option<Mark>,
    ) -> Option<Fence> {
        let Grant { fence, baton, heir } = self.awaited.get_mut(&lease)?.grant.take()?;
        if let Some((_, expected)) = baton
            && mark() != Some(expected)
        {
            return None;
        }
        self.awaited.remove(&lease);
        let predecessor = baton.map(|(from, _)| from);
        self.held.insert(lease, Tenure { predecessor, heir });
        Some(fence)
    }

    /// Whether `lease` was let in by a message.
    pub(crate) fn holds(&self, lease: LeaseId) -> bool {
        self.held.contains_key(&lease)
    }

    /// Who let `lease` in without having written it, as far as is known.
    pub(crate) fn predecessor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        self.held.get(&lease)?.predecessor
    }

    /// Forgets who let `lease` in: it is written.
    pub(crate) fn confirm(&mut self, lease: LeaseId) {
        if let Some(tenure) = self.held.get_mut(&lease) {
            tenure.predecessor = None;
        }
    }

    /// Forgets that `lease` waits.
    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.awaited.remove(&lease);
    }

    /// Forgets that `lease` holds: from now on it lets in nobody by itself, whatever is heard.
    pub(crate) fn leave(&mut self, lease: LeaseId) -> Tenure {
        self.held.remove(&lease).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use sprag_core::SessionId;

    use super::*;

    const MARK: Mark = Mark { file: 1, length: 0 };

    fn lease(number: u128) -> LeaseId {
        LeaseId::from_u128(number)
    }

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    fn baton() -> Message {
        Message::Baton { lease: lease(1), fence: fence(7), from: lease(2), mark: MARK }
    }

    fn told(heir: Option<Heir>) -> Message {
        Message::Told { lease: lease(1), grant: Some(fence(7)), heir }
    }

    fn heir() -> Heir {
        Heir { lease: lease(3), session: SessionId::from_u128(3), fence: fence(8), mark: MARK }
    }

    fn waiting() -> Leases {
        let mut leases = Leases::default();
        leases.await_grant(lease(1), Place::default());
        leases
    }

    #[test]
    fn a_baton_counts_once_for_who_waits_and_if_nobody_used_force() {
        let mut leases = waiting();
        leases.hear(baton());
        assert_eq!(leases.enter(lease(1), || Some(Mark { length: 1, ..MARK })), None);
        assert_eq!(leases.enter(lease(1), || Some(MARK)), None, "it was thrown away");
        leases.hear(baton());
        assert_eq!(leases.enter(lease(1), || None), None, "the file is gone");
        leases.hear(baton());
        assert_eq!(leases.enter(lease(1), || Some(MARK)), Some(fence(7)));
        assert_eq!(leases.predecessor_of(lease(1)), Some(lease(2)));
        leases.leave(lease(1));
        leases.hear(baton());
        assert_eq!(leases.enter(lease(1), || Some(MARK)), None, "it waits no more");
    }

    #[test]
    fn what_is_written_is_heard_before_and_after_entering() {
        for early in [true, false] {
            let mut leases = waiting();
            leases.hear(baton());
            if early {
                leases.hear(told(Some(heir())));
            }
            let mark = || if early { None } else { Some(MARK) };
            assert_eq!(leases.enter(lease(1), mark), Some(fence(7)));
            leases.hear(told(Some(heir())));
            leases.hear(baton());
            let Tenure { predecessor, heir: found } = leases.leave(lease(1));
            assert_eq!((predecessor, found), (None, Some(heir())), "early: {early}");
        }
    }

    #[test]
    fn who_lost_the_lock_or_changes_it_passes_nothing_on() {
        let lost = Message::Told { lease: lease(1), grant: None, heir: None };
        let mut leases = waiting();
        leases.hear(told(Some(heir())));
        leases.hear(lost);
        assert_eq!(leases.enter(lease(1), || Some(MARK)), None, "it has to ask");
        leases.hear(told(Some(heir())));
        assert_eq!(leases.enter(lease(1), || Some(MARK)), Some(fence(7)));
        leases.hear(lost);
        assert_eq!(leases.leave(lease(1)).heir, None);
        let mut leases = waiting();
        leases.hear(told(Some(heir())));
        assert!(leases.enter(lease(1), || Some(MARK)).is_some());
        leases.leave(lease(1));
        leases.hear(told(Some(heir())));
        assert_eq!(leases.leave(lease(1)).heir, None, "not even if it hears of one later");
    }
}
