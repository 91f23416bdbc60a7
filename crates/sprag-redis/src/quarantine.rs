//! What is answered while a server may have forgotten who holds what: nothing is granted.
//!
//! "Not yet" is only said of a lease that the server does not have. The client counts its lease from
//! the last such answer, and what the server has granted it counts from earlier.

use sprag_core::record::{Command, Outcome};
use sprag_core::store::{
    Attempt, Contention, Conversion, Converted, Grant, Renewal, Renewed, Request,
};
use sprag_core::{Error, LeaseId, LockName, Loss, Mode, Operation, Result};

use crate::error::{STORE, Trouble};
use crate::store::RedisStore;

impl RedisStore {
    /// The answer to who asks for a lock, or was granted one that does not count.
    pub(crate) async fn acquire_in_quarantine(
        &self,
        request: &Request,
        closed: Trouble,
    ) -> Result<Attempt> {
        let (name, lease) = (&request.name, request.lease);
        if !request.queue {
            // It is in doubt what the server has: the client asks again, or gives it up.
            return Err(told(closed, Operation::Acquire, name));
        }
        // Who waits waits for this as well. Until it has asked the server, there is nothing there.
        if !self.wakeups.is_open(lease) || !self.take_back(name, lease).await? {
            return Ok(Attempt::Held(Contention::default()));
        }
        // It goes on with a new lease.
        Ok(Attempt::Gone(Loss::StateLost))
    }

    /// The answer to a renewal of what the server believes to be held.
    ///
    /// Who held it before still does. Who waited when it asked last was granted it since: it asks
    /// again, and gives it back then.
    pub(crate) async fn renewed_in_quarantine(
        &self,
        renewal: &Renewal,
        grant: Grant,
    ) -> Result<Renewed> {
        let (name, lease) = (&renewal.name, renewal.lease);
        if self.wakeups.is_open(lease) {
            return Ok(Renewed::Unknown);
        }
        if grant.mode != Mode::Exclusive || !self.wakeups.mailboxes.is_open(lease) {
            return Ok(Renewed::Held(grant));
        }
        // It waited for an upgrade.
        let grant = self.step_down(Operation::Renew, name, lease, grant).await?;
        Ok(grant.map_or(Renewed::Unknown, Renewed::Held))
    }

    /// The answer to who wants to be alone, or was granted that although it does not count: there
    /// may be readers that the server has forgotten.
    pub(crate) async fn upgrade_in_quarantine(
        &self,
        conversion: &Conversion,
        granted: Option<Grant>,
        closed: Trouble,
    ) -> Result<Converted> {
        let (name, lease) = (&conversion.name, conversion.lease);
        if let Some(grant) = granted {
            self.step_down(Operation::Convert, name, lease, grant).await?;
        }
        if conversion.queue {
            return Ok(Converted::Waiting);
        }
        Err(told(closed, Operation::Convert, name))
    }

    /// Frees what the server has of a lease; whether it had anything.
    async fn take_back(&self, name: &LockName, lease: LeaseId) -> Result<bool> {
        let answer = self.run(Operation::Acquire, name, Command::Release { lease }).await?;
        self.wakeups.close(lease);
        Ok(answer.outcome != Outcome::Gone(Loss::StateLost))
    }

    /// Makes an exclusive holder one that others may read beside.
    async fn step_down(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
        grant: Grant,
    ) -> Result<Option<Grant>> {
        let (fence, to) = (grant.fence, Mode::Upgradable);
        let command = Command::Convert { lease, fence, to, queue: false };
        let answer = self.run(operation, name, command).await?;
        Ok(if let Outcome::Granted(grant) = answer.outcome { Some(grant) } else { None })
    }
}

fn told(closed: Trouble, operation: Operation, name: &LockName) -> Error {
    Error::from(closed).during(operation).on(name).at(STORE)
}
