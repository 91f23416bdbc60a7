//! [`LockGuard`]: the owner of a grant.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, REQUEST_TIMEOUT};
use super::keeper::Order;
use super::lease::Lease;
use super::suspicion::Suspicion;
use super::tenure::Phase;
use super::ticket::Ticket;
use super::{Client, Inner};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::fence::Fence;
use crate::id::LeaseId;
use crate::loss::Loss;
use crate::mode::Mode;
use crate::name::LockName;
use crate::store::{self, Bind, Conversion, Converted, Renewed};

/// What a guard knows about its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Held.
    Held,
    /// Held, but the last renewal failed: it is lost unless the next succeeds in time.
    Suspect,
    /// Not held any more.
    Lost(Loss),
}

/// What a release found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now.
    Freed,
    /// The lock was lost before; what was done under it since may have been done by two.
    AlreadyLost(Loss),
}

/// Owns a lock until it is released or dropped.
///
/// `release().await` is the real release and tells whether the lock was held to the end. Dropping
/// the guard hands the release to the client's thread: it works anywhere, in a panic or without a
/// runtime, and is usually done within one round trip.
///
/// `mem::forget` leaks the lock: it is renewed until `max_hold`, or for ever.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases the lock at once"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    inner: Arc<Inner>,
    lease: Arc<Lease>,
    /// Nothing is left to be released.
    settled: bool,
}

impl LockGuard {
    pub(super) fn new(inner: Arc<Inner>, lease: Arc<Lease>) -> Self {
        Self { inner, lease, settled: false }
    }

    pub(super) fn begin_span(&self) {
        self.lease.begin_span(self.mode(), self.fence());
    }

    fn core(&self) -> &Core {
        &self.inner.core
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.lease.name
    }

    /// Whether `client`, or a clone of it, acquired the lock.
    pub fn belongs_to(&self, client: &Client) -> bool {
        Arc::ptr_eq(&self.inner, &client.inner)
    }

    /// The lease id: whoever knows it may release the lock.
    pub fn lease(&self) -> LeaseId {
        self.lease.id
    }

    /// The fence of the grant: pass it to the protected resource with each write. An upgrade
    /// takes a new one.
    pub fn fence(&self) -> Fence {
        self.lease.with(|tenure| tenure.grant()).map_or(Fence::ZERO, |grant| grant.fence)
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.lease.with(|tenure| tenure.grant()).map_or(self.lease.mode, |grant| grant.mode)
    }

    /// Whether another holder was pushed aside for it.
    pub fn took_over(&self) -> bool {
        self.lease.with(|tenure| tenure.grant()).is_some_and(|grant| grant.took_over)
    }

    /// The length of the lease.
    pub fn ttl(&self) -> Duration {
        self.lease.with(|tenure| tenure.ttl())
    }

    /// When the lease ends if it is not renewed any more, on the client's clock. Before that the
    /// store gives the lock to nobody else.
    pub fn valid_until(&self) -> Moment {
        self.lease.with(|tenure| tenure.deadline())
    }

    /// What is known now.
    pub fn state(&self) -> LockState {
        match self.core().check(&self.lease) {
            Err(loss) => LockState::Lost(loss),
            Ok(_) if self.lease.with(|tenure| tenure.is_suspect()) => LockState::Suspect,
            Ok(_) => LockState::Held,
        }
    }

    /// Whether the lock is held and its lease is good at this moment.
    pub fn is_valid(&self) -> bool {
        self.core().check(&self.lease).is_ok()
    }

    /// Checks that the lock is held and its lease is good at this moment. Ask before each step
    /// that must not be done by two; it costs a look at the clock.
    ///
    /// # Errors
    ///
    /// Lost, with the reason.
    pub fn ensure_valid(&self) -> Result<()> {
        self.core().check(&self.lease).map(|_| ()).map_err(|loss| self.lost_error(loss))
    }

    /// How long the lease is good without another renewal; zero if it is lost.
    pub fn time_remaining(&self) -> Duration {
        self.core().check(&self.lease).unwrap_or_default()
    }

    /// Resolves when the lock is lost, no later than its lease ends; with
    /// [`Loss::Released`] when it is released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let lease = Arc::clone(&self.lease);
        async move { lease.ended().await }
    }

    /// Runs `work` and stops it when the lock is lost.
    ///
    /// # Errors
    ///
    /// Lost if the lock was lost before `work` was done. What it did until then stays done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `work`; the guard is kept.
    ///
    /// # Examples
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::sync::Arc;
    /// # use sprag_core::{Client, MemoryStore};
    /// # let locks = Client::new(Arc::new(MemoryStore::new()));
    /// let guard = locks.lock("report").acquire().await?;
    /// let pages = guard.run(async { 3 }).await?;
    /// assert_eq!(pages, 3);
    /// # Ok::<(), sprag_core::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F: Future + Send>(&self, work: F) -> Result<F::Output>
    where
        F::Output: Send,
    {
        self.ensure_valid()?;
        tokio::select! {
            biased;
            loss = self.lost() => Err(self.lost_error(loss)),
            done = work => {
                // A lease that ended while the last step ran is a loss as well.
                self.ensure_valid()?;
                Ok(done)
            }
        }
    }

    /// Makes the lease last at least `ttl` from now on, and be renewed to that length.
    ///
    /// It sets, it does not add. It never brings a lost lock back, and never ends one earlier than
    /// it would have ended: to end it, release it. Unanswered, it changes nothing, whenever it
    /// arrives at the store.
    ///
    /// # Errors
    ///
    /// Lost; bad input for a TTL out of range; unavailable if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lease is extended or not, and as good as if it was not answered.
    pub async fn extend(&mut self, ttl: Duration) -> Result<()> {
        self.ensure_valid()?;
        let able = self.core().store.capability();
        let (min, max) = (able.min_ttl, able.max_ttl);
        if ttl < min || ttl > max {
            let message = format!("a TTL of {ttl:?} is not between {min:?} and {max:?}");
            return Err(Error::bad_input(Operation::Renew, message).on(self.name()));
        }
        self.renew(ttl, Bind::Keep).await
    }

    async fn renew(&self, ttl: Duration, bind: Bind) -> Result<()> {
        match self.core().extend(&self.lease, ttl, bind).await? {
            Renewed::Lost(loss) => Err(self.lost_error(loss)),
            Renewed::Unknown => Err(Error::unknown_renewal(self.name())),
            Renewed::Held(_) | Renewed::Waiting => self.ensure_valid(),
        }
    }

    /// Waits until the other readers have left, and becomes exclusive with a new fence. Only a
    /// lock acquired as upgradable may wait; new readers are kept out meanwhile.
    ///
    /// # Errors
    ///
    /// Deadlock for a shared lock that is not the only reader, or if the other readers wait for
    /// a lock of this task; lost; unsupported.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the guard keeps what it has, and other readers are let in again.
    pub async fn upgrade(&mut self) -> Result<()> {
        let wish = Wish { guard: self, withdrawn: false };
        let mut suspicion = Suspicion::new(wish.guard.core().now());
        loop {
            if wish.guard.convert(Mode::Exclusive, true).await? {
                wish.came_true();
                return Ok(());
            }
            let core = wish.guard.core();
            let lease = &wish.guard.lease;
            tokio::select! {
                biased;
                loss = lease.ended() => return Err(wish.guard.lost_error(loss)),
                () = core.store.changed(&lease.name, lease.id) => {}
                () = core.sleep(Duration::from_millis(250)) => {}
            }
            suspicion.follow(core, lease).await?;
        }
    }

    /// Becomes exclusive now, with a new fence, if there is no other reader.
    ///
    /// # Errors
    ///
    /// Lost; unsupported; unavailable if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it is upgraded or not; [`LockGuard::mode`] tells after the next renewal.
    pub async fn try_upgrade(&mut self) -> Result<bool> {
        match self.convert(Mode::Exclusive, false).await {
            Ok(upgraded) => Ok(upgraded),
            Err(error) if error.is_deadlock() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Turns an exclusive lock into an upgradable or shared one, or an upgradable one into a
    /// shared one, and lets waiting readers in. The fence stays.
    ///
    /// # Errors
    ///
    /// Bad input for any other step; lost; unavailable if the store does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: unanswered or dropped half-way, the store may let readers in at any time, so
    /// the guard counts as the weaker of both from then on. Asking again finishes it.
    pub async fn downgrade(&mut self, to: Mode) -> Result<()> {
        if to == Mode::Exclusive {
            let message = "exclusive is not a step down; use upgrade";
            return Err(Error::bad_input(Operation::Convert, message).on(self.name()));
        }
        self.convert(to, false).await.map(|_| ())
    }

    /// `Ok(true)` if converted, `Ok(false)` if it waits.
    async fn convert(&self, to: Mode, queue: bool) -> Result<bool> {
        self.finish_step_down().await?;
        loop {
            self.ensure_valid()?;
            let believed = self.fence();
            let converted = self.convert_from(believed, to, queue).await?;
            // An earlier conversion was done although its answer was lost: now what is held is
            // known, and it can be converted from there.
            if !converted || self.mode() == to || self.fence() == believed {
                return Ok(converted);
            }
        }
    }

    /// Finishes a downgrade that was not answered. What comes after it then takes a new fence,
    /// and a request that is still on its way changes nothing any more.
    async fn finish_step_down(&self) -> Result<()> {
        match self.lease.with(|tenure| tenure.open_step_down()) {
            Some(to) => self.convert_from(self.fence(), to, false).await.map(|_| ()),
            None => Ok(()),
        }
    }

    async fn convert_from(&self, fence: Fence, to: Mode, queue: bool) -> Result<bool> {
        let (name, lease) = (self.name().clone(), self.lease.id);
        let conversion = Conversion { name, lease, fence, to, queue };
        let before = self.lease.with(|tenure| {
            let before = tenure.stepping_down();
            tenure.asked_to_become(to, fence);
            before
        });
        let request = self.core().store.convert(&conversion);
        let answer = self.core().request(Operation::Convert, self.ttl(), request).await;
        if answer.as_ref().is_err_and(|error| !error.is_indeterminate()) {
            self.lease.with(|tenure| tenure.refused_to_become(before));
        }
        match answer.map_err(|error| error.on(self.name()))? {
            Converted::Done(grant) => {
                let now = self.core().now();
                self.lease.with(|tenure| tenure.converted(grant, now));
                self.ensure_valid().map(|()| true)
            }
            Converted::Waiting => Ok(false),
            Converted::Blocked => {
                let message = "other readers hold it too; if each waited for the others to leave, \
                               all would wait for ever: acquire it as upgradable";
                Err(Error::new(ErrorKind::Deadlock, Operation::Convert, message).on(self.name()))
            }
            Converted::Lost(loss) => {
                self.lease.with(|tenure| tenure.lose(loss.clone()));
                Err(self.lost_error(loss))
            }
        }
    }

    /// Releases the lock and tells whether it was held to the end.
    ///
    /// Never frees a successor's lock: the store compares the lease id.
    ///
    /// # Errors
    ///
    /// Unavailable if the store does not answer within 5 s; the client's thread goes on trying
    /// until the TTL ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a future dropped half-way leaves the release to the client's thread.
    pub async fn release(mut self) -> Result<Released> {
        let before = self.core().check(&self.lease).err();
        self.end(before.as_ref());
        let answer = self.core().release(&self.lease, REQUEST_TIMEOUT).await?;
        self.settle();
        Ok(match (before, answer) {
            (Some(loss), _) => Released::AlreadyLost(loss),
            (None, store::Released::Freed) => Released::Freed,
            // It was good until its deadline by our clock, so it was taken away on purpose, or
            // an earlier release of ours had got through.
            (None, store::Released::AlreadyGone(Loss::Released)) => Released::Freed,
            (None, store::Released::AlreadyGone(loss)) => Released::AlreadyLost(loss),
        })
    }

    /// Turns the guard into a ticket for another process. The lease is renewed once, and from
    /// then on lives by its TTL until it is adopted.
    ///
    /// # Errors
    ///
    /// Lost; unsupported on a store without detached leases; unavailable. The lock is then
    /// released, as if the guard had been dropped.
    ///
    /// # Cancel safety
    ///
    /// A future dropped half-way releases the lock.
    pub async fn into_ticket(mut self) -> Result<Ticket> {
        if !self.core().store.capability().detached {
            let message = "this store has no detached leases";
            return Err(Error::new(ErrorKind::Unsupported, Operation::Renew, message)
                .on(self.name())
                .at(self.core().telemetry.store));
        }
        self.finish_step_down().await?;
        self.renew(self.ttl(), Bind::Detach).await?;
        let (name, lease) = (self.name().clone(), self.lease.id);
        let ticket = Ticket::new(name, lease, self.mode(), self.fence(), self.ttl());
        self.end(None);
        self.settle();
        Ok(ticket)
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::lost(loss).on(self.name()).at(self.core().telemetry.store)
    }

    /// No more renewals, and the lock does not count as held here any more.
    fn end(&mut self, lost: Option<&Loss>) {
        let core = &self.inner.core;
        let already = self.lease.with(|tenure| {
            let already = *tenure.phase() == Phase::Ended;
            tenure.end();
            already
        });
        if already {
            return;
        }
        let held = core.now().since(self.lease.with(|tenure| tenure.held_since()));
        let end = match lost {
            None => "released",
            Some(Loss::Expired | Loss::Unreachable) => "expired",
            Some(Loss::Broken { .. }) => "broken",
            Some(_) => "lost",
        };
        core.telemetry.ended(self.lease.mode, held, end);
    }

    fn settle(&mut self) {
        self.settled = true;
        self.inner.core.registry.remove(&self.lease);
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // A forked child only has a copy: the lock is the parent's.
        if self.settled || !self.lease.is_own_process() {
            return;
        }
        let lost = self.core().check(&self.lease).err();
        self.end(lost.as_ref());
        self.inner.order(Order::Release(Arc::clone(&self.lease)));
    }
}

/// The wish to be upgraded; dropping it takes it back.
struct Wish<'a> {
    guard: &'a LockGuard,
    withdrawn: bool,
}

impl Wish<'_> {
    fn came_true(mut self) {
        self.withdrawn = true;
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        if !self.withdrawn {
            self.guard.inner.order(Order::Withdraw(Arc::clone(&self.guard.lease)));
        }
    }
}
