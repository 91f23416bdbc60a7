//! [`Passing`]: a lock that goes from one task of this process to another before that is written.
//!
//! Whoever is let in by a release is told its heir, if the next in line waits in the same process: see
//! `sql/queue.sql` and [`Wakeups`]. It lets that one in when it gives the lock back, and sends its
//! release after that. Until the release is done the row lets in nobody but the heir, with the fence
//! that it was promised, whatever becomes of the holder; of an advisory lock, the session that both
//! are of has the session lock all the time. The promise was written with the grant of who was told of
//! it, and for as long.
//!
//! * **The answer to the release tells what the heir may rely on.** If the holder's time was over, or
//!   it was broken or overdue, the row has let in the heir by that. Force robs both, and a server that
//!   forgot the one has forgotten the other: then the heir's guard is told at once.
//! * **A release without an answer** is repeated by the client. It lets in nobody a second time, and
//!   finds by its own lease whom it has let in.
//! * **An heir that is faster** than the release of its predecessor waits for it, and sends it itself
//!   if that takes long: it may have been cancelled. Anything else that is asked for an heir comes after
//!   that release as well: the row would still call it a waiter.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::record::Outcome;
use sprag_core::store::{Bind, Released, Renewal, Renewed};
use sprag_core::wakeups::{Wakeups, step_aside};
use sprag_core::{LeaseId, LockName, Loss, Result};
use tokio::sync::Notify;

use crate::link::Link;

/// How long an heir that leaves waits for the release of its predecessor, which is on its way.
const PATIENCE: Duration = Duration::from_millis(100);

/// The releases of this process that are on their way while the heir is inside already.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    leaving: Mutex<HashSet<LeaseId>>,
    left: Notify,
}

impl Passing {
    /// Gives a lock back, after its heir was let in. `release` sends a release.
    pub(crate) async fn give_back<F>(
        &self,
        wakeups: &Wakeups,
        link: &Link,
        lease: LeaseId,
        release: impl Fn(LeaseId) -> F + Send + Sync,
    ) -> Result<Released>
    where
        F: Future<Output = Result<Outcome>> + Send,
    {
        // A forked child must not let anybody in on behalf of its parent.
        link.ensure_own_process()?;
        if let Some(predecessor) = wakeups.predecessor_of(lease) {
            // Whom we let in is told by the answer to it.
            tokio::select! {
                () = self.until_left(predecessor) => {}
                () = link.sleep(PATIENCE) => {}
            }
        }
        settle(wakeups, lease, &release).await?;
        let heir = wakeups.pass_on(lease).heir.map(|heir| heir.lease);
        let _leaving = heir.map(|_| self.leave(lease));
        if heir.is_some() {
            // It may want this very thread, and nobody waits for what is sent now.
            step_aside().await;
        }
        let outcome = release(lease).await?;
        tell_heir(wakeups, lease, heir, &outcome);
        Ok(match outcome {
            // Our heir was faster, and has given it back for us.
            Outcome::Gone(Loss::Released) if heir.is_some() => Released::Freed,
            outcome => outcome.into_released(),
        })
    }

    fn leave(&self, lease: LeaseId) -> Leaving<'_> {
        self.leaving().insert(lease);
        Leaving { passing: self, lease }
    }

    /// Waits until the release of `lease` is answered, or nobody waits for that any more.
    async fn until_left(&self, lease: LeaseId) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            // Registered before looking, so that none is missed.
            left.as_mut().enable();
            if !self.leaving().contains(&lease) {
                return;
            }
            left.await;
        }
    }

    fn leaving(&self) -> MutexGuard<'_, HashSet<LeaseId>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release that is on its way.
struct Leaving<'a> {
    passing: &'a Passing,
    lease: LeaseId,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.passing.leaving().remove(&self.lease);
        self.passing.left.notify_waiters();
    }
}

/// Before anything else is asked about a lease that was let in by its predecessor: the release of that
/// one has to be written, and `release` sends it.
pub(crate) async fn settle<F>(
    wakeups: &Wakeups,
    lease: LeaseId,
    release: impl Fn(LeaseId) -> F + Send + Sync,
) -> Result<()>
where
    F: Future<Output = Result<Outcome>> + Send,
{
    if let Some(predecessor) = wakeups.predecessor_of(lease) {
        let outcome = release(predecessor).await?;
        tell_heir(wakeups, predecessor, Some(lease), &outcome);
    }
    Ok(())
}

/// The same for leases that are renewed: those that become somebody else's do not let in their heirs
/// by themselves any more. Returns for whom it failed; the others are renewed all the same.
pub(crate) async fn settle_all<F>(
    wakeups: &Wakeups,
    leases: &[Renewal],
    release: impl Fn(LockName, LeaseId) -> F + Send + Sync,
) -> Vec<LeaseId>
where
    F: Future<Output = Result<Outcome>> + Send,
{
    let mut unsettled = Vec::new();
    for Renewal { name, lease, bind, .. } in leases {
        let settled = settle(wakeups, *lease, |lease| release(name.clone(), lease)).await;
        if let Err(error) = settled {
            tracing::warn!(target: "sprag::renew", %error, "the release before is not written");
            unsettled.push(*lease);
        }
        if *bind != Bind::Keep {
            wakeups.leave(*lease);
        }
    }
    unsettled
}

/// What the answers to renewals mean: who is called a waiter because the release before it is not
/// written may be inside, and who has lost its lock has nothing to pass on.
pub(crate) fn judged(
    wakeups: &Wakeups,
    leases: &[Renewal],
    renewed: Vec<Renewed>,
    unsettled: &[LeaseId],
) -> Vec<Renewed> {
    let judge = |lease: LeaseId, renewed| match renewed {
        Renewed::Waiting if unsettled.contains(&lease) => Renewed::Unknown,
        Renewed::Lost(loss) => {
            wakeups.leave(lease);
            Renewed::Lost(loss)
        }
        renewed => renewed,
    };
    leases.iter().zip(renewed).map(|(renewal, renewed)| judge(renewal.lease, renewed)).collect()
}

/// Sees to it that whom `lease` has let in learns what that is worth, from what became of the release
/// of `lease`.
fn tell_heir(wakeups: &Wakeups, lease: LeaseId, heir: Option<LeaseId>, released: &Outcome) {
    let heir = match released {
        // One that was repeated does not know whom it has let in.
        Outcome::Gone(_) => heir.or_else(|| wakeups.successor_of(lease)),
        _ => heir,
    };
    let Some(heir) = heir else { return };
    match released {
        Outcome::Done
        | Outcome::Gone(
            Loss::Released
            | Loss::Expired
            | Loss::Broken { .. }
            | Loss::Stolen { forced: false, .. },
        ) => wakeups.confirm(heir),
        _ => wakeups.sever(heir),
    }
}
