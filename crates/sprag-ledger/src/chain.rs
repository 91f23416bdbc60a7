//! Chains that begin anew: the history of a lock is bounded, and the last of it is taken along.

use std::collections::BTreeMap;
use std::time::Duration;

use sprag_core::{ErrorKind, LockName, Result};

use crate::clerk::Clerk;
use crate::ledger::{Change, New, Swapped};
use crate::oid::Oid;
use crate::page;
use crate::plan::{About, Plan};
use crate::ref_name::RefName;

/// How many entries of a chain are read, and how many bytes of what happened are taken along, when
/// it begins anew.
const TAIL: usize = 100;
const TAIL_BYTES: usize = 24 << 10;
/// A swap that took longer is not tried a second time at once: others wait for this thread.
const SLOW: Duration = Duration::from_secs(5);

impl Clerk {
    /// What has to be taken along of the chains that begin anew with this plan. A chain that cannot
    /// be read goes on.
    pub(crate) fn tails(&self, plan: &Plan) -> BTreeMap<LockName, Vec<String>> {
        let overlong = plan.overlong(self.library.settings.chain).filter(|_| !self.keeps_history);
        let tail = |(name, tip): (&LockName, &Oid)| {
            let history = self.library.ledger.history(&RefName::lock(name), TAIL).ok()?;
            let is_base = history.first().is_some_and(|(newest, _)| newest == tip);
            let tail = page::tail_of(history.iter().map(|(_, entry)| entry), TAIL_BYTES);
            is_base.then(|| (name.clone(), tail))
        };
        overlong.filter_map(tail).collect()
    }

    /// Swaps, and does it without new beginnings where the ledger refuses them, as servers do that
    /// take only fast-forwards. Be the first try done in the end: the second is refused then, and
    /// what was done is read.
    pub(crate) fn swap(&mut self, about: &[About], changes: &[Change]) -> Result<Vec<Swapped>> {
        let following = || changes.iter().cloned().map(Change::following).collect::<Vec<_>>();
        let has_roots = changes.iter().any(|change| matches!(change.new, New::Root(_)));
        // What goes along with a swap would be in the way of a second try.
        if !has_roots || self.keeps_history || about.contains(&About::Along) {
            let swapped = self.library.ledger.swap(&following())?;
            self.keeps_history = false;
            return Ok(swapped);
        }
        let sent = self.library.clock.now();
        match self.library.ledger.swap(changes) {
            Err(error) if !matches!(error.kind(), ErrorKind::RateLimited) => {
                if self.library.clock.now().since(sent) > SLOW {
                    // Who asks again gets it done in the other way.
                    self.keeps_history = true;
                    return Err(error);
                }
                let again = self.library.ledger.swap(&following());
                // The first try may be done, or may be yet, however sure the second answer is.
                if error.is_indeterminate() && again.is_err() { Err(error) } else { again }
            }
            swapped => swapped,
        }
    }
}
