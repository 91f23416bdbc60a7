//! [`Holding`]: what is held while a command runs, by whomever it was taken.

use std::pin::Pin;

use sprag::clock::Moment;
use sprag::{Fence, LockGuard, LockName, Loss};

use super::socket::Held;

/// Which lock was lost, with which fence, and why; some day.
pub(crate) type Losing<'a> = Pin<Box<dyn Future<Output = (LockName, Fence, Loss)> + 'a>>;

/// What is held while a command runs.
pub(crate) trait Holding {
    /// The locks that were named, in their order.
    fn guards(&self) -> &[LockGuard];

    /// These, and what stands beside them.
    fn all(&self) -> Vec<&LockGuard> {
        self.guards().iter().collect()
    }

    /// The number of the slot, where there are slots.
    fn slot(&self) -> Option<u32> {
        None
    }

    /// The locks and their leases, in the order in which they are given back.
    fn leases(&self) -> Vec<(String, String)> {
        let lease = |guard: &LockGuard| (guard.name().to_string(), guard.lease().to_string());
        self.all().into_iter().rev().map(lease).collect()
    }

    /// Until when all of it is surely held without another renewal.
    fn valid_until(&self) -> Moment {
        self.all().into_iter().map(LockGuard::valid_until).min().unwrap_or(Moment::START)
    }

    /// Resolve when one of them is lost; with which, and why.
    fn losses(&self) -> Vec<Losing<'_>> {
        let loss = |guard| -> Losing<'_> {
            let guard: &LockGuard = guard;
            Box::pin(async { (guard.name().clone(), guard.fence(), guard.lost().await) })
        };
        self.all().into_iter().map(loss).collect()
    }

    /// What the command is told about its locks.
    fn held(&self) -> Vec<Held> {
        let held = |guard: &LockGuard| Held {
            lock: guard.name().to_string(),
            token: guard.fence().get(),
            safe_for: guard.is_valid().then(|| guard.time_remaining()),
        };
        self.guards().iter().map(held).collect()
    }
}

/// One lock that somebody else takes and releases.
impl Holding for &LockGuard {
    fn guards(&self) -> &[LockGuard] {
        std::slice::from_ref(self)
    }
}
