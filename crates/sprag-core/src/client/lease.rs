//! [`Lease`]: one acquire call as guard, keeper and registry share it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use super::telemetry::Telemetry;
use super::tenure::{Phase, Tenure};
use crate::clock::Moment;
use crate::fence::Fence;
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
    telemetry: Telemetry,
    tenure: Mutex<Tenure>,
    /// For as long as it is held, where somebody listens.
    span: Mutex<Span>,
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
        telemetry: Telemetry,
    ) -> Self {
        Self {
            id,
            party,
            name,
            mode,
            holder,
            process: std::process::id(),
            telemetry,
            tenure: Mutex::new(tenure),
            span: Mutex::new(Span::none()),
            changed: Notify::new(),
            nudge: Notify::new(),
        }
    }

    /// Looks at the tenure or changes it. Whoever waits for a change is told afterwards, and a loss
    /// is counted: whoever finds it, it is one.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Tenure) -> T) -> T {
        let mut tenure = self.lock();
        let before = tenure.phase().clone();
        let result = act(&mut tenure);
        let now = (*tenure.phase() != before).then(|| tenure.phase().clone());
        drop(tenure);
        if let Some(now) = now {
            self.changed.notify_waiters();
            if before == Phase::Holding {
                self.is_over(&now);
            }
        }
        result
    }

    fn is_over(&self, end: &Phase) {
        let span = std::mem::replace(&mut *self.lock_span(), Span::none());
        if let Phase::Lost(loss) = end {
            self.telemetry.lost(loss);
            let lock = &self.name;
            if *loss == Loss::ShutDown {
                tracing::debug!(target: "sprag::lost", parent: &span, %lock, reason = %loss, "lost");
            } else {
                tracing::warn!(target: "sprag::lost", parent: &span, %lock, reason = %loss, "lost");
            }
        }
    }

    /// Begins the span of a lock that is held, inside of the caller's.
    pub(crate) fn begin_span(&self, mode: Mode, fence: Fence) {
        let span = tracing::debug_span!(
            target: "sprag::hold", "sprag hold",
            lock = %self.name, %mode, %fence, store = self.telemetry.store
        );
        if !span.is_disabled() {
            *self.lock_span() = span;
            // It may have been lost just before.
            if self.with(|tenure| *tenure.phase() != Phase::Holding) {
                *self.lock_span() = Span::none();
            }
        }
    }

    /// Tells in its span that it was renewed, with what was left of it.
    pub(crate) fn tell_renewal(&self, left: Duration) {
        if tracing::enabled!(target: "sprag::renew", tracing::Level::DEBUG) {
            let span = self.lock_span().clone();
            let lock = &self.name;
            tracing::debug!(target: "sprag::renew", parent: &span, %lock, ?left, "renewed");
        }
    }

    fn lock_span(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the process that acquired it.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// What is left of it at `now`, or why it is lost.
    pub(crate) fn check(&self, now: Moment) -> Result<Duration, Loss> {
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
    use crate::store::Grant;

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
        let (mode, holder) = (Mode::Exclusive, Holder::default());
        let telemetry = Telemetry { store: "test" };
        let mut lease = Lease::new(id, party, name, mode, holder, tenure, telemetry);
        assert!(lease.check(Moment::START).is_ok());
        // As in the child: its copy says who made it, and that is somebody else.
        lease.process = std::process::id() + 1;
        assert_eq!(lease.check(Moment::START), Err(Loss::Forked));
    }
}
