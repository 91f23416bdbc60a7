//! [`Companion`]: a branch that comes and goes with a lock, for people to see.

use crate::ledger::{Change, New};
use crate::oid::Oid;
use crate::ref_name::RefName;

/// A branch that is made in the same step as the lock is taken, and deleted in the same step as it
/// is released. For locks that are tried, not waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Companion {
    /// The branch.
    pub branch: RefName,
    /// Where it has to be when the lock is taken; `None` if it must not exist. Somebody who has
    /// taken over a lock finds the branch of who had it.
    pub before: Option<Oid>,
    /// Where it is to be then.
    pub at: Oid,
}

impl Companion {
    pub(crate) fn arrival(&self) -> Change {
        let (name, old) = (self.branch.clone(), self.before.clone());
        Change { name, old, new: New::At(self.at.clone()) }
    }

    pub(crate) fn departure(&self) -> Change {
        Change { name: self.branch.clone(), old: Some(self.at.clone()), new: New::Nowhere }
    }
}
