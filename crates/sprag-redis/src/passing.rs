//! A lock that goes from one task of this process to another before that is written: see
//! [`Wakeups`](sprag_core::wakeups::Wakeups).
//!
//! Whoever is let in by a release is told its heir, if the next in line waits in the same process. It
//! lets that one in when it gives the lock back, and sends its release after that. Until the release
//! is done the record lets in nobody but the heir, and the plain key keeps other programs out for as
//! long as the heir may believe in its lease, see `scripts/head.lua`.
//!
//! * **The answer to the release tells what the heir may rely on.** Whatever else became of the holder
//!   (it expired, was broken or was overdue), the record has let in the heir by that. Force robs both,
//!   and a server that forgot the lock has forgotten both: then the heir's guard is told at once.
//! * **A release without an answer** is repeated by the client. It lets in nobody a second time, and
//!   finds by its own lease whom it has let in.
//! * **An heir that leaves at once** may be faster than the release before it, on another connection or
//!   because that was cancelled. It then leaves its place in the queue, and the release that comes
//!   later lets in whoever is next.
//! * **Anything else that is asked for an heir** comes after the release of its predecessor, which is
//!   sent once more for it: the record would still call it a waiter.

use sprag_core::record::{Command, Outcome};
use sprag_core::store::Released;
use sprag_core::wakeups::step_aside;
use sprag_core::{Fence, LeaseId, LockName, Loss, Mode, Operation, Result};

use crate::store::RedisStore;

impl RedisStore {
    /// Gives a lock back, after its heir was let in.
    pub(crate) async fn give_back(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let heir = self.pass_on(name, lease).await?;
        if heir.is_some() {
            // It may want this very thread, and nobody waits for what is sent now.
            step_aside().await;
        }
        let answer = self.run(Operation::Release, name, Command::Release { lease }).await?;
        self.tell_heir(name, lease, heir, &answer.outcome).await;
        Ok(match answer.outcome {
            // Our heir was faster, and has given it back for us.
            Outcome::Gone(Loss::Released) if heir.is_some() => Released::Freed,
            outcome => outcome.into_released(),
        })
    }

    /// Lets in the heir of a lease that is given back, if there is one and it is allowed.
    async fn pass_on(&self, name: &LockName, lease: LeaseId) -> Result<Option<LeaseId>> {
        let plain = self.keys.plain(name);
        let link = self.link_to(Operation::Release, name, &plain).await;
        let link = link.inspect_err(|_| self.wakeups.close(lease))?;
        // A forked child must not let anybody in on behalf of its parent, and nobody is let in by a
        // server that may have forgotten who holds what.
        if !link.is_own() || link.server.may_grant().is_err() {
            self.wakeups.leave(lease);
        }
        Ok(self.wakeups.pass_on(lease).heir.map(|heir| heir.lease))
    }

    /// Before anything else is asked about a lease that was let in by its predecessor: that has to be
    /// written. If the lease `changes`, it does not let in its heir by itself any more.
    pub(crate) async fn settle(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
        changes: bool,
    ) -> Result<()> {
        if let Some(predecessor) = self.wakeups.predecessor_of(lease) {
            let release = Command::Release { lease: predecessor };
            let answer = self.run(operation, name, release).await?;
            self.tell_heir(name, predecessor, Some(lease), &answer.outcome).await;
        }
        if changes {
            self.wakeups.leave(lease);
        }
        Ok(())
    }

    /// Sees to it that whom `lease` has let in learns what that is worth, from what became of the
    /// release of `lease`.
    async fn tell_heir(
        &self,
        name: &LockName,
        lease: LeaseId,
        heir: Option<LeaseId>,
        released: &Outcome,
    ) {
        let heir = match released {
            // One that was repeated does not know whom it has let in.
            Outcome::Gone(_) => heir.or_else(|| self.wakeups.successor_of(lease)),
            _ => heir,
        };
        let Some(heir) = heir else { return };
        match released {
            Outcome::Done | Outcome::Gone(Loss::Released) => self.wakeups.confirm(heir),
            Outcome::Gone(Loss::Stolen { forced: true, .. }) => self.wakeups.sever(heir),
            _ => self.ask_for_heir(name, heir).await,
        }
    }

    /// Asks whether the record has let in an heir. It is the question of one who wants to become what
    /// it is, with a fence that nobody has: it changes nothing.
    async fn ask_for_heir(&self, name: &LockName, heir: LeaseId) {
        let (fence, to) = (Fence::ZERO, Mode::Exclusive);
        let question = Command::Convert { lease: heir, fence, to, queue: false };
        match self.run(Operation::Release, name, question).await.map(|answer| answer.outcome) {
            Ok(Outcome::Granted(grant)) => self.wakeups.hear(&format!("{heir}:{}", grant.fence)),
            Ok(_) => self.wakeups.sever(heir),
            // Its own renewal will tell, or its time ends.
            Err(error) => tracing::debug!(target: "sprag::redis", %error, "an heir is in doubt"),
        }
    }
}
