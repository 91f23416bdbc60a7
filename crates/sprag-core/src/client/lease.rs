//! [`Lease`]: one acquire call as guard, keeper and registry share it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::tenure::{Phase, Tenure};
use crate::clock::Moment;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::name::LockName;

#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// Who counts as its holder, or as waiting, in a deadlock.
    pub(crate) party: PartyId,
    pub(crate) name: LockName,
    /// The mode asked for; the mode held is in the grant.
    pub(crate) mode: Mode,
    /// Who it is for, in the audit trail.
    pub(crate) holder: Holder,
    /// The process that made it. A forked child has a copy, and no right to use it.
    process: u32,
    tenure: Mutex<Tenure>,
    /// Wakes everybody who waits for the lease to end, or for a renewal to be over.
    changed: Notify,
    /// Wakes the one that asks for the lock, when a renewal brought the grant.
    pub(crate) nudge: Notify,
}

impl Lease {
    pub(crate) fn new(
        id: LeaseId,
        party: PartyId,
        name: LockName,
        mode: Mode,
        holder: Holder,
        tenure: Tenure,
    ) -> Self {
        Self {
            id,
            party,
            name,
            mode,
            holder,
            process: std::process::id(),
            tenure: Mutex::new(tenure),
            changed: Notify::new(),
            nudge: Notify::new(),
        }
    }

    /// Looks at the tenure or changes it. Whoever waits for a change is told afterwards.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Tenure) -> T) -> T {
        let mut tenure = self.lock();
        let before = tenure.phase().clone();
        let result = act(&mut tenure);
        let changed = *tenure.phase() != before;
        drop(tenure);
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that acquired it.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// What is left of it at `now`, or why it is lost.
    pub(crate) fn check(&self, now: Moment) -> Result<std::time::Duration, Loss> {
        if !self.is_own_process() {
            return Err(Loss::Forked);
        }
        self.with(|tenure| tenure.check(now))
    }

    /// Tells everybody who waits that a renewal is over.
    pub(crate) fn renewal_is_over(&self) {
        self.changed.notify_waiters();
    }

    /// Waits until `ready` gives a value; asks again after each change.
    pub(crate) async fn until<T: Send>(
        &self,
        mut ready: impl FnMut(&mut Tenure) -> Option<T> + Send,
    ) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, so a change in between is not missed.
            changed.as_mut().enable();
            if let Some(value) = self.with(&mut ready) {
                return value;
            }
            changed.await;
        }
    }

    /// Waits until the lease is lost or released.
    pub(crate) async fn ended(&self) -> Loss {
        self.until(|tenure| match tenure.phase() {
            Phase::Lost(loss) => Some(loss.clone()),
            Phase::Ended => Some(Loss::Released),
            Phase::Asking | Phase::Holding => None,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fence;
    use crate::store::Grant;
    use std::time::Duration;

    #[test]
    fn a_forked_child_does_not_hold_what_its_parent_holds() {
        let mut tenure = Tenure::new(Duration::from_secs(30), true, None);
        tenure.asked(Moment::START);
        tenure.offered(
            Grant { fence: Fence::MAX, mode: Mode::Exclusive, took_over: false },
            Moment::START,
        );
        tenure.enter(Moment::START).unwrap();
        let (id, party) = (LeaseId::from_u128(1), PartyId::from_u128(1));
        let name = LockName::new("job").unwrap();
        let mut lease = Lease::new(id, party, name, Mode::Exclusive, Holder::default(), tenure);
        assert!(lease.check(Moment::START).is_ok());
        // As in the child: its copy says who made it, and that is somebody else.
        lease.process = std::process::id() + 1;
        assert_eq!(lease.check(Moment::START), Err(Loss::Forked));
    }
}
