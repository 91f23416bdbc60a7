//! [`Tended`]: the leases of this process that live by its session, and until when each of them is
//! good. The others only see the session; that one of many leases is not renewed any more is for
//! us to see.

use std::collections::HashMap;
use std::time::Duration;

use sprag_core::clock::Moment;
use sprag_core::{LeaseId, LockName};

#[derive(Debug, Default)]
pub(crate) struct Tended(HashMap<LeaseId, Tending>);

#[derive(Debug)]
struct Tending {
    name: LockName,
    until: Moment,
}

impl Tended {
    /// The owner asked for the lease, or renewed it, at `asked`.
    pub(crate) fn renew(&mut self, lease: LeaseId, name: &LockName, ttl: Duration, asked: Moment) {
        // Its owner counts on the same clock, from an earlier moment.
        let until = asked.plus(ttl);
        let tending = self.0.entry(lease).or_insert(Tending { name: name.clone(), until });
        tending.until = tending.until.max(until);
    }

    pub(crate) fn forget(&mut self, lease: LeaseId) {
        self.0.remove(&lease);
    }

    /// Whether nobody renewed it in time, or nobody knows it.
    pub(crate) fn is_over(&self, lease: LeaseId, now: Moment) -> bool {
        self.0.get(&lease).is_none_or(|tending| now >= tending.until)
    }

    /// When the next one is over.
    pub(crate) fn next(&self) -> Moment {
        self.0.values().map(|tending| tending.until).min().unwrap_or(Moment::NEVER)
    }

    /// Those that are over by now.
    pub(crate) fn over(&self, now: Moment) -> Vec<(LeaseId, LockName)> {
        let over = self.0.iter().filter(|(_, tending)| now >= tending.until);
        over.map(|(lease, tending)| (*lease, tending.name.clone())).collect()
    }

    /// Looks at it again at this moment, and not before.
    pub(crate) fn postpone(&mut self, lease: LeaseId, until: Moment) {
        if let Some(tending) = self.0.get_mut(&lease) {
            tending.until = until;
        }
    }
}
