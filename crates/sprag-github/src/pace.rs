//! [`Pace`]: how often a lock is looked at while somebody waits for it.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sprag_core::clock::Moment;
use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::store::Contention;
use sprag_core::{LeaseId, LockName};

/// No more locks are remembered.
const MAX_LOCKS: usize = 4096;

/// What was seen of locks that somebody waits for: all waiters of a process share one look, and
/// the longer nothing changes the more seldom it is.
#[derive(Debug)]
pub(crate) struct Pace {
    range: RangeInclusive<Duration>,
    looks: Mutex<HashMap<LockName, Look>>,
}

#[derive(Debug)]
struct Look {
    seen: Contention,
    waiting: HashSet<LeaseId>,
    pause: Duration,
    next: Moment,
}

impl Pace {
    pub(crate) fn new(range: RangeInclusive<Duration>) -> Self {
        Self { range, looks: Mutex::default() }
    }

    /// What was seen last, if it is too early to look again. Who asks for the first time looks.
    pub(crate) fn too_early(
        &self,
        name: &LockName,
        lease: LeaseId,
        now: Moment,
    ) -> Option<Contention> {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let look = looks.get(name).filter(|look| look.waiting.contains(&lease))?;
        (now < look.next).then(|| look.seen.clone())
    }

    /// It is held, as a look has just told.
    pub(crate) fn saw(&self, name: &LockName, lease: LeaseId, seen: &Contention, now: Moment) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() >= MAX_LOCKS && !looks.contains_key(name) {
            looks.clear();
        }
        let first = *self.range.start();
        let look = looks.entry(name.clone()).or_insert_with(|| Look {
            seen: Contention::default(),
            waiting: HashSet::new(),
            pause: first,
            next: now,
        });
        let fences = |seen: &Contention| seen.holders.iter().map(|h| h.fence).collect::<Vec<_>>();
        look.pause = if fences(&look.seen) == fences(seen) && look.next <= now {
            (look.pause * 2).min(*self.range.end())
        } else if fences(&look.seen) == fences(seen) {
            look.pause
        } else {
            first
        };
        look.seen = seen.clone();
        look.waiting.insert(lease);
        // Not all machines at once.
        look.next = now.plus(look.pause.mul_f64(0.75 + 0.5 * OsEntropy.next_fraction()));
    }

    /// Who held it when we looked last.
    pub(crate) fn last(&self, name: &LockName) -> Option<Contention> {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.get(name).map(|look| look.seen.clone())
    }

    /// It has changed: whoever waits looks at once.
    pub(crate) fn changed(&self, name: &LockName) {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_get_more_seldom_and_are_shared() {
        let pace = Pace::new(Duration::from_secs(1)..=Duration::from_secs(16));
        let name = LockName::new("issue-1").unwrap();
        let (first, second) = (LeaseId::from_u128(1), LeaseId::from_u128(2));
        let held = Contention::default();
        let (mut now, mut looks) = (Moment::START, 0);
        while now < Moment::START.plus(Duration::from_secs(3600)) {
            if pace.too_early(&name, first, now).is_none() {
                pace.saw(&name, first, &held, now);
                looks += 1;
            }
            now = now.plus(Duration::from_millis(100));
        }
        assert!((180..310).contains(&looks), "{looks}");
        assert!(pace.too_early(&name, second, now).is_none(), "who comes looks");
        pace.saw(&name, second, &held, now);
        assert!(pace.too_early(&name, second, now).is_some());
        assert!(pace.too_early(&name, first, now).is_some(), "and both have seen it");
        pace.changed(&name);
        assert!(pace.too_early(&name, first, now).is_none());
    }
}
