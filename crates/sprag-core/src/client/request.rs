//! [`LockRequest`]: what the caller wants, checked before the store is touched.

use std::time::Duration;

use super::{Client, LockGuard};
use crate::capability::Capability;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::holder::{Holder, TaskInfo};
use crate::id::PartyId;
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::Strategy;
use crate::record::PRIORITIES;

/// How long to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most so long.
    AtMost(Duration),
    /// Until it is free.
    Forever,
}

/// A request for a lock, from [`Client::lock`].
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # use std::{sync::Arc, time::Duration};
/// # use sprag_core::{Client, MemoryStore};
/// # let locks = Client::new(Arc::new(MemoryStore::new()));
/// let guard = locks
///     .lock("deploy")
///     .ttl(Duration::from_secs(30))
///     .wait(Duration::from_secs(60))
///     .priority(1)
///     .reason("release 1.2")
///     .acquire()
///     .await?;
/// // Held: another one does not get it.
/// assert!(locks.lock("deploy").try_acquire().await?.is_none());
/// # drop(guard);
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LockRequest {
    pub(super) client: Client,
    pub(super) name: Result<LockName, String>,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) priority: i8,
    pub(super) strategy: Strategy,
    pub(super) holder: Holder,
    pub(super) party: Option<PartyId>,
    pub(super) auto_renew: bool,
    pub(super) max_hold: Option<Duration>,
    pub(super) detached: bool,
    pub(super) resize: bool,
    /// Held is an answer, and none for the audit trail.
    pub(super) quiet: bool,
}

impl LockRequest {
    pub(super) fn new(client: Client, name: Result<LockName>) -> Self {
        let holder = client.inner.holder.clone();
        let ttl = client.capability().default_ttl;
        Self {
            client,
            // Kept as text so that a request can be cloned and tried again.
            name: name.map_err(|error| error.to_string()),
            mode: Mode::Exclusive,
            ttl,
            wait: Wait::Forever,
            priority: 0,
            strategy: Strategy::Retry,
            holder,
            party: None,
            auto_renew: true,
            max_hold: None,
            detached: false,
            resize: false,
            quiet: false,
        }
    }

    /// Asks to share the lock with other readers.
    pub const fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// Asks to read, with the right to become exclusive later.
    pub const fn upgradable(self) -> Self {
        self.mode(Mode::Upgradable)
    }

    /// Asks for `count` of the `of` permits of a semaphore.
    pub const fn permits(self, count: u32, of: u32) -> Self {
        self.mode(Mode::Permits { count, of })
    }

    /// Asks for any mode.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How long the lease lasts without being renewed; by default as the store's capability says,
    /// 30 s on most. A holder that dies blocks others for at most so long.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while it is held. A store that does not answer is not asked again after
    /// that; a request that is under way takes up to 5 s more.
    pub const fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Wait::AtMost(at_most);
        self
    }

    /// Waits until it is free. The default.
    pub const fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Does not wait: held is an error at once.
    pub const fn no_wait(mut self) -> Self {
        self.wait = Wait::No;
        self
    }

    /// Goes before lower priorities: each level counts as having come 10 s earlier. -8 to 8.
    pub const fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// What to do about a holder that is in the way.
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Names the worker that wants the lock, instead of the client's.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = holder;
        self
    }

    /// Says why the lock is wanted; others see it while they wait.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.holder.reason = Some(reason.into());
        self
    }

    /// Says what is going to be done under the lock.
    pub fn task_info(mut self, task_info: TaskInfo) -> Self {
        self.holder.task_info = Some(task_info);
        self
    }

    /// Ends the automatic renewal after so long: a hung holder does not keep the lock for ever.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Does not renew: the lease ends after its TTL unless it is extended.
    pub const fn no_renewal(mut self) -> Self {
        self.auto_renew = false;
        self
    }

    /// Lets the lease live by its TTL alone: it outlives this process.
    pub const fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// Replaces the stored number of permits, if the semaphore is in use with another.
    pub const fn resize(mut self) -> Self {
        self.resize = true;
        self
    }

    /// Counts as this party in deadlocks, instead of the running task.
    ///
    /// A lock belongs to the task that acquires it. Where several futures of one task wait for
    /// each other's locks, give each a party of its own, or they are taken for a deadlock. A
    /// process that runs others while it holds locks gives each of them an
    /// [inner](PartyId::inner) party.
    pub const fn party(mut self, party: PartyId) -> Self {
        self.party = Some(party);
        self
    }

    /// Counts as a party of its own, see [`LockRequest::party`].
    pub fn own_party(self) -> Self {
        let party = PartyId::random(&*self.client.inner.core.entropy);
        self.party(party)
    }

    /// Acquires the lock.
    ///
    /// # Guarantees
    ///
    /// While [`LockGuard::ensure_valid`] says yes, no other holder is inside its own validity,
    /// to the extent of the store's [level](crate::Level). The guard carries a fence.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a future dropped half-way leaves the queue, and releases the lock if it was
    /// granted meanwhile. The place in the queue is lost.
    ///
    /// # Errors
    ///
    /// Held, timeout, deadlock, unavailable, bad input, unsupported: see the predicates of
    /// [`Error`].
    pub async fn acquire(self) -> Result<LockGuard> {
        super::acquire::acquire(self).await
    }

    /// Tries once and does not wait; `None` if somebody else holds it.
    ///
    /// # Cancel safety
    ///
    /// As [`LockRequest::acquire`].
    ///
    /// # Errors
    ///
    /// As [`LockRequest::acquire`], but held is `None`.
    pub async fn try_acquire(self) -> Result<Option<LockGuard>> {
        let request = Self { quiet: true, ..self.no_wait() };
        match super::acquire::acquire(request).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_held() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks everything that can be known without the store.
    pub(super) fn validate(&self) -> Result<LockName> {
        let name = self.name.clone().map_err(|text| {
            let text = text.strip_prefix("cannot acquire: ").unwrap_or(&text).to_owned();
            Error::bad_input(Operation::Acquire, text)
        })?;
        let able = self.client.capability();
        self.check_values(able)
            .and_then(|()| self.check_abilities(able))
            .map_err(|error| error.on(&name).at(able.store))?;
        Ok(name)
    }

    fn check_values(&self, able: &Capability) -> Result<()> {
        let bad = |message: String| Err(Error::bad_input(Operation::Acquire, message));
        let (min, max) = (able.min_ttl, able.max_ttl);
        if self.ttl < min || self.ttl > max {
            return bad(format!("a TTL of {:?} is not between {min:?} and {max:?}", self.ttl));
        }
        if let Mode::Permits { count, of } = self.mode
            && (count == 0 || count > of)
        {
            return bad(format!(
                "{count} of {of} permits cannot be: take at least 1 and at most {of}"
            ));
        }
        if !PRIORITIES.contains(&self.priority) {
            return bad(format!("priority {} is not between -8 and 8", self.priority));
        }
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return bad("max_hold is 0: nothing could be done under the lock".into());
        }
        let size = self.holder.size();
        if size > able.max_holder_bytes {
            let limit = able.max_holder_bytes;
            return bad(format!(
                "worker, reason and task have {size} bytes of text, at most {limit} fit"
            ));
        }
        Ok(())
    }

    fn check_abilities(&self, able: &Capability) -> Result<()> {
        let lacks = |ability: &str| {
            let message = format!("this store has no {ability}");
            Err(Error::new(ErrorKind::Unsupported, Operation::Acquire, message))
        };
        match self.mode {
            Mode::Shared | Mode::Upgradable if !able.shared => return lacks("read-write locks"),
            Mode::Permits { .. } if !able.permits => return lacks("semaphores"),
            _ => {}
        }
        if self.priority != 0 && !able.queue {
            return lacks("priorities");
        }
        if self.detached && !able.detached {
            return lacks("detached leases");
        }
        match self.strategy {
            Strategy::StealStale { .. } | Strategy::ForceAcquire if !able.steal => {
                lacks("take-over")
            }
            Strategy::ForceAcquire if !self.client.inner.allow_force => {
                let message = "taking by force is off; allow it in the client's configuration";
                Err(Error::new(ErrorKind::Refused, Operation::Acquire, message))
            }
            _ => Ok(()),
        }
    }
}
