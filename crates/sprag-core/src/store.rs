//! [`Store`]: the contract between the client and a place where locks live.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

use crate::audit::{AuditEntry, AuditQuery};
use crate::capability::Capability;
use crate::diagnosis::Finding;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::evictions::Evictions;
use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId};
use crate::loss::Loss;
use crate::mode::Mode;
use crate::name::LockName;
use crate::view::{HolderView, LockView};

/// A place where locks live. Waiting, renewing, retrying and metrics are the client's work; a
/// store answers one question at a time.
///
/// # Contract
///
/// 1. *Held is an answer, not an error*: [`try_acquire`](Self::try_acquire) tries once and never
///    waits.
/// 2. *Unknown is an answer*: when a request was sent and no answer came, the error is
///    [indeterminate](crate::Error::is_indeterminate). The client then asks again with the same
///    lease id; the store must recognise it.
/// 3. Every method is idempotent by lease id or fence, and compares it in the same atomic step
///    as the write. A late duplicate changes nothing.
/// 4. A lease is good for its whole TTL from the moment the store applied the request. The
///    client counts from the moment it *sent* the request, which is earlier.
/// 5. The fence never repeats and never goes back: over release, expiry, restart and clean-up.
/// 6. Release, expiry, eviction and conversion hand the lock to the waiters who can have it now,
///    in order, and wake only those.
/// 7. A future of a store may be dropped at any point. What it asked for may then be done or
///    not; it must not be done later than a following request for the same lease.
///
/// A store made of a [record](crate::record) obeys 3, 5 and 6 by construction.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// What this store can do. Fixed for the life of the store.
    fn capability(&self) -> &Capability;

    /// Tries once to take the lock, or joins its queue if `request.queue` is set.
    ///
    /// Repeated with the same lease id it answers anew: [`Attempt::Granted`] with the same fence
    /// if the lease holds the lock by now (its expiry is *not* moved), or the place in the queue.
    async fn try_acquire(&self, request: &Request) -> Result<Attempt>;

    /// Renews many leases at once, holders and waiters alike; one answer for each, in order.
    ///
    /// Never brings an expired lease back. One lease that cannot be renewed is no reason to fail the
    /// others: it is [`Renewed::Unknown`]. An error means that nothing is known about any of them,
    /// and so does no answer within [`renewal_limit`].
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>>;

    /// Turns a held lease into another mode.
    async fn convert(&self, conversion: &Conversion) -> Result<Converted>;

    /// Frees what the lease holds and takes it out of the queue, whichever it is.
    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released>;

    /// Takes back a wish that was not granted yet: leaves the queue, or stops waiting for an
    /// upgrade. A lease that holds the lock keeps it.
    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()>;

    /// Looks at one lock. A lock that was never used looks free.
    async fn inspect(&self, name: &LockName) -> Result<LockView>;

    /// Lists locks in the order of their names, a page at a time.
    async fn list(&self, listing: &Listing) -> Result<Page>;

    /// Breaks the holders that carry exactly this fence, whoever they are.
    async fn evict(&self, eviction: &Eviction) -> Result<Evicted>;

    /// Waits for a hint that the answer to `try_acquire` or `convert` may have changed for this
    /// lease. Hints since the last answer are remembered. May never resolve: the client always
    /// has a timer behind it.
    async fn changed(&self, name: &LockName, lease: LeaseId);

    /// A descriptor that keeps this process's session alive as long as any process has it open,
    /// and so all that the session holds, up to its TTL. `None` where sessions live by their TTL
    /// alone.
    ///
    /// It is for a guardian that must be done before anybody else may enter. Closed on exec, so
    /// that it is handed on only on purpose. Dropping the store ends the session all the same.
    fn lifeline(&self) -> Option<OwnedFd> {
        None
    }

    /// Whether the session behind a lease is over, or may be, so that the lease is lost whatever its
    /// TTL: for stores that free what a session holds when its connection ends. Costs a look at the
    /// clock, and is asked whenever a guard is.
    fn is_severed(&self, lease: LeaseId) -> bool {
        let _ = lease;
        false
    }

    /// Waits until a session of this store has ended, so that the leases of it are
    /// [severed](Self::is_severed). May never resolve.
    async fn severed(&self) {
        std::future::pending::<()>().await;
    }

    /// Hints that locks of this process may have been taken away. From this call on the store listens
    /// for them, which may take a connection of its own; the client calls it once it has held a lock
    /// for about a second. `None` where there are none.
    ///
    /// Requires [`Capability::eviction_hints`].
    fn evictions(&self) -> Option<Evictions> {
        None
    }

    /// Reads the audit trail. What the store decides is in it, written with the change or right
    /// after it; see [`audit_entries`](crate::audit::audit_entries). The last
    /// [`TRAIL_LENGTH`](crate::audit::TRAIL_LENGTH) entries are kept, or fewer.
    ///
    /// Requires [`Capability::audit`].
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let _ = query;
        Err(no_trail(self.capability()))
    }

    /// Adds to the trail what only the client knows; the store gives each entry its sequence.
    /// An entry whose answer was lost may be in the trail twice.
    ///
    /// Requires [`Capability::audit`].
    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let _ = entries;
        Err(no_trail(self.capability()))
    }

    /// Looks at the settings and the surroundings that the store's promise depends on. May take
    /// several requests and never changes anything.
    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

pub(crate) fn no_trail(capability: &Capability) -> Error {
    let message = "this store keeps no audit trail";
    Error::new(ErrorKind::Unsupported, Operation::Audit, message).at(capability.store)
}

/// What is asked of [`Store::try_acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The lock.
    pub name: LockName,
    /// This acquire call, over all its retries.
    pub lease: LeaseId,
    /// Who waits, for the deadlock search.
    pub party: PartyId,
    /// How much of the lock is asked for.
    pub mode: Mode,
    /// How long the lease lasts without being renewed.
    pub ttl: Duration,
    /// Whether to join the queue if the lock is held.
    pub queue: bool,
    /// Higher goes first: each level counts as having come 10 s earlier. -8 to 8.
    pub priority: i8,
    /// Who asks, for people.
    pub holder: Holder,
    /// Whether the lease lives by its TTL alone, and not by the session of this process.
    pub detached: bool,
    /// Whether nobody renews the lease while it is held, unless it is extended by hand.
    pub fixed: bool,
    /// Whether a holder may be pushed aside.
    pub takeover: Takeover,
    /// Whether a semaphore's stored number of permits is to be replaced by the one asked for.
    pub resize: bool,
}

/// Whether a holder that is in the way may be pushed aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// Never.
    No,
    /// If its last sign of life is at least this old by the store's clock or observation, and
    /// two of its renewals, one every third of its TTL, are missing. A holder that is not renewed
    /// by itself can miss none: it goes when its TTL ends.
    Overdue(Duration),
    /// Always, and past the queue. Breaks exclusion by request; fences still grow.
    Force,
}

/// The answer to [`Store::try_acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The lease holds the lock.
    Granted(Grant),
    /// The lease waits in the queue.
    Queued(Contention),
    /// Somebody else holds the lock, and the lease does not wait.
    Held(Contention),
    /// The lease was here before and is gone; it will not be granted again.
    Gone(Loss),
}

/// The store's yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The fence of this grant.
    pub fence: Fence,
    /// How it is held.
    pub mode: Mode,
    /// Whether somebody was pushed aside for it, when it was granted.
    pub took_over: bool,
}

/// The store's not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// How many waiters are ahead.
    pub ahead: usize,
    /// Who is in the way; a few of them, for messages.
    pub holders: Vec<HolderView>,
}

/// One lease in [`Store::renew`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The lock.
    pub name: LockName,
    /// The lease.
    pub lease: LeaseId,
    /// Its new length, counted from now. If it lasts for longer already, its end stays: renewals may
    /// overtake each other on their way.
    pub ttl: Duration,
    /// What the lease lives by from now on.
    pub bind: Bind,
}

/// What a renewed lease lives by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bind {
    /// As before.
    #[default]
    Keep,
    /// Its TTL alone: it outlives this process.
    Detach,
    /// This process's session: it ends with this process at the latest. Only a lease that lives by
    /// its TTL alone, or by this session already, is given away so; to anybody else it is lost, by
    /// [`Loss::Adopted`], and not renewed.
    Attach,
}

/// The answer for one lease in [`Store::renew`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease holds the lock for another TTL.
    Held(Grant),
    /// The lease waits on.
    Waiting,
    /// The lease is gone.
    Lost(Loss),
    /// Nothing is known about this one: it may have been renewed or not, and is asked again.
    Unknown,
}

impl Renewed {
    /// The answers for leases that were asked about one by one. Those that failed are
    /// [`Unknown`](Self::Unknown).
    ///
    /// # Errors
    ///
    /// The first one, if all have failed: it says more than that nothing is known.
    pub fn of_each(answers: impl IntoIterator<Item = Result<Self>>) -> Result<Vec<Self>> {
        let (mut first, mut known) = (None, false);
        let of_one = |answer: Result<Self>| {
            answer.inspect(|_| known = true).unwrap_or_else(|error| {
                tracing::warn!(target: "sprag::renew", %error, "one of several renewals failed");
                first.get_or_insert(error);
                Self::Unknown
            })
        };
        let answers = answers.into_iter().map(of_one).collect();
        first.filter(|_| !known).map_or(Ok(answers), Err)
    }
}

/// How long the client waits for the answer to [`Store::renew`]: short enough for another try
/// before the first of the leases ends.
pub fn renewal_limit(leases: &[Renewal]) -> Duration {
    let shortest = leases.iter().map(|renewal| renewal.ttl).min().unwrap_or_default();
    (shortest / 6).min(Duration::from_secs(2))
}

/// What is asked of [`Store::convert`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conversion {
    /// The lock.
    pub name: LockName,
    /// The lease that holds it.
    pub lease: LeaseId,
    /// The fence that the caller believes the lease has. With another one nothing is done, and the
    /// answer is what is held: so a conversion that arrives once more, after others, is harmless.
    pub fence: Fence,
    /// The mode to turn into.
    pub to: Mode,
    /// Whether to wait for readers to leave; only an upgradable lease may.
    pub queue: bool,
}

/// The answer to [`Store::convert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Converted {
    /// The lease now holds the lock in the mode asked for.
    Done(Grant),
    /// The lease keeps what it has; new readers are kept out until it can be upgraded.
    Waiting,
    /// Somebody else is in the way and the lease keeps what it has. If both waited they would
    /// wait for ever.
    Blocked,
    /// The lease is gone.
    Lost(Loss),
}

/// The answer to [`Store::release`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lease held the lock or waited, and does not any more.
    Freed,
    /// The lease was gone already; nothing was changed.
    AlreadyGone(Loss),
}

/// The target of the events of `tracing` about records that [`Store::list`] leaves out because they
/// cannot be read. The field `lock` is the name.
pub const LEFT_OUT: &str = "sprag::left_out";

/// What is asked of [`Store::list`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Only names that start with this.
    pub prefix: String,
    /// Only names after this one; the last page's `next`.
    pub after: Option<LockName>,
    /// At most so many; 0 means the store's own page size.
    pub limit: usize,
    /// Only locks that somebody waits for, be it for an upgrade.
    pub contended: bool,
}

/// One page of [`Store::list`]. Free locks are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The locks, by name.
    pub locks: Vec<LockView>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<LockName>,
}

/// What is asked of [`Store::evict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The lock.
    pub name: LockName,
    /// The fence that the operator saw.
    pub fence: Fence,
    /// Who breaks it.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// The answer to [`Store::evict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// These holders were broken.
    Broken(Vec<Holder>),
    /// Nobody holds the lock with that fence; nothing was changed.
    NotHeld,
}
