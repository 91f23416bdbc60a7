//! [`LedgerStore`]: the contract of a store on top of a [`Ledger`].

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::entropy::OsEntropy;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::Outcome;
use sprag_core::store::{
    Attempt, Contention, Conversion, Converted, Evicted, Eviction, Listing, Page, Released,
    Renewal, Renewed, Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, Holder, HolderView, LeaseId, LockName, LockView, Result,
    SessionId, Store,
};
use tokio::sync::oneshot;

use crate::clerk::{Clerk, Inbox};
use crate::companion::Companion;
use crate::job::{Answer, Job, Wish};
use crate::ledger::{Change, Ledger};
use crate::library::{Library, READ_AT_ONCE, Verdict};
use crate::ref_name::RefName;
use crate::settings::Settings;
use crate::trail;

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;

/// Locks on a [`Ledger`].
///
/// Each store is a session of its own; clones share it. One thread does all that is written, and
/// puts what comes at the same time into one swap.
///
/// # Guarantees
///
/// L3 as long as the ledger keeps its contract and nobody rewrites its references by hand. A lock
/// is decided by one swap of its reference. Nobody's clock is compared with another's: a holder is
/// stale if this process, or an earlier one on this machine, has seen no sign of life of its
/// session for its TTL and 5 %. A takeover swaps the reference of the session as well, so a sign
/// of life and a takeover cannot both happen.
///
/// What breaks it: somebody who deletes or rewinds `refs/sprag/...`; clocks that differ in speed by
/// more than 5 %.
#[derive(Clone, Debug)]
pub struct LedgerStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    library: Arc<Library>,
    inbox: Arc<Inbox>,
    mailboxes: Arc<Mailboxes>,
    companions: Mutex<HashMap<LockName, Companion>>,
    /// A forked child has a copy of this, but not the thread.
    process: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

/// What became of [`LedgerStore::release_with`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concluded {
    /// The lock is released and everything that was to go along is done.
    Done,
    /// Nothing was done: these references are not where they had to be.
    InTheWay(Vec<RefName>),
    /// Nothing was done: the lease does not hold the lock any more.
    Lost(sprag_core::Loss),
}

impl LedgerStore {
    /// A store on this ledger.
    ///
    /// # Errors
    ///
    /// If the operating system gives it no thread.
    pub fn new(ledger: Arc<dyn Ledger>, settings: Settings) -> Result<Self> {
        Self::with_clock(ledger, settings, Arc::new(BootClock))
    }

    /// As [`new`](Self::new), with a clock of the caller's.
    ///
    /// # Errors
    ///
    /// If the operating system gives it no thread.
    pub fn with_clock(
        ledger: Arc<dyn Ledger>,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let own = SessionId::random(&OsEntropy);
        let library = Arc::new(Library::new(ledger, settings, clock, own));
        let (inbox, mailboxes) = (Arc::<Inbox>::default(), Arc::<Mailboxes>::default());
        let clerk = Clerk::new(Arc::clone(&library), Arc::clone(&inbox), Arc::clone(&mailboxes));
        let spawned = std::thread::Builder::new().name("sprag-ledger".into());
        spawned.spawn(move || clerk.run()).map_err(|error| {
            library.error(ErrorKind::Unavailable, "no thread for the store").caused_by(error)
        })?;
        let (companions, process) = (Mutex::default(), std::process::id());
        Ok(Self { inner: Arc::new(Inner { library, inbox, mailboxes, companions, process }) })
    }

    /// The ledger.
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.inner.library.ledger
    }

    /// The session of this store.
    pub fn session(&self) -> SessionId {
        self.inner.library.own
    }

    /// Lets a branch come and go with a lock, from the next time it is taken.
    pub fn accompany(&self, name: &LockName, companion: Companion) {
        self.companions().insert(name.clone(), companion);
    }

    /// The branch that goes with a lock is somewhere else by now, because its holder moved it.
    pub fn follow(&self, name: &LockName, at: crate::Oid) {
        if let Some(companion) = self.companions().get_mut(name) {
            companion.at = at;
        }
    }

    /// The branch does not go with the lock any more; it stays where it is.
    pub fn part(&self, name: &LockName) -> Option<Companion> {
        self.companions().remove(name)
    }

    /// Releases a lock together with other changes: all of it, if the lease still holds the lock
    /// and every reference is where it has to be, or nothing. A branch that
    /// [goes with the lock](Self::accompany) is not touched unless it is among the changes.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be reached, or what became of it is not known.
    pub async fn release_with(
        &self,
        name: &LockName,
        lease: LeaseId,
        along: Vec<Change>,
    ) -> Result<Concluded> {
        let held = |view: &LockView| view.holders.iter().any(|holder| holder.lease == lease);
        if !held(&self.inspect(name).await?) {
            return Ok(Concluded::Lost(self.loss(name, lease)));
        }
        let answer = self.ask(name, Wish::Release(lease), along).await?;
        match answer.outcome {
            Outcome::Gone(loss) => Ok(Concluded::Lost(loss)),
            _ if !answer.in_the_way.is_empty() => Ok(Concluded::InTheWay(answer.in_the_way)),
            _ => {
                self.companions().remove(name);
                Ok(Concluded::Done)
            }
        }
    }

    /// Breaks the holders that carry exactly this fence, together with other changes: all of it, or
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be reached, or what became of it is not known.
    pub async fn evict_with(&self, eviction: &Eviction, along: Vec<Change>) -> Result<Concluded> {
        let answer = self.ask(&eviction.name, Wish::Evict(eviction.clone()), along).await?;
        if !answer.in_the_way.is_empty() {
            return Ok(Concluded::InTheWay(answer.in_the_way));
        }
        Ok(match answer.outcome.into_evicted() {
            Evicted::Broken(_) => Concluded::Done,
            Evicted::NotHeld => Concluded::Lost(sprag_core::Loss::Released),
        })
    }

    fn loss(&self, name: &LockName, lease: LeaseId) -> sprag_core::Loss {
        let shelf = self.inner.library.shelf();
        shelf.get(name).map_or(sprag_core::Loss::StateLost, |copy| copy.record.loss_of(lease))
    }

    /// For how long the holders of a lock were seen without a sign of life, by lease; those of
    /// this process are left out. Looks once.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be reached.
    pub async fn silence(&self, name: &LockName) -> Result<HashMap<LeaseId, Silence>> {
        let name = name.clone();
        self.read(move |library| {
            library.read(std::slice::from_ref(&name))?;
            let copy = library.shelf().get(&name).cloned();
            let Some(copy) = copy else { return Ok(HashMap::new()) };
            library.watch(&library.strangers(&copy.record))?;
            let others =
                copy.record.holders.iter().filter(|hold| hold.session != Some(library.own));
            let silences = others.filter_map(|hold| {
                let seen = library.silence(hold)?;
                Some((hold.lease, Silence { seen, stale: library.is_stale(hold, Duration::ZERO) }))
            });
            Ok(silences.collect())
        })
        .await
    }

    /// An operator says that the holders of a lock are dead: they are stale from now on, as far as
    /// this store is concerned.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be reached.
    pub async fn assume_dead(&self, name: &LockName) -> Result<()> {
        let name = name.clone();
        self.read(move |library| {
            library.read(std::slice::from_ref(&name))?;
            let copy = library.shelf().get(&name).cloned();
            let Some(copy) = copy else { return Ok(()) };
            library.watch(&library.strangers(&copy.record))?;
            library.assume_dead(&copy.record);
            Ok(())
        })
        .await
    }

    /// Deletes the sessions of others that are stale for `ttl` and that no lock speaks of. Returns
    /// how many. A session seen for the first time is never deleted.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be reached.
    pub async fn tidy(&self, ttl: Duration) -> Result<usize> {
        self.read(move |library| library.tidy(ttl)).await
    }

    fn companions(&self) -> MutexGuard<'_, HashMap<LockName, Companion>> {
        self.inner.companions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job(&self, name: &LockName, wish: Wish, along: Vec<Change>) -> (Job, Reply) {
        let (reply, answer) = oneshot::channel();
        let (name, asked) = (name.clone(), self.inner.library.clock.now());
        (Job { name, wish, along, asked, reply }, answer)
    }

    async fn ask(&self, name: &LockName, wish: Wish, along: Vec<Change>) -> Result<Answer> {
        let (job, reply) = self.job(name, wish, along);
        self.push([job])?;
        self.hear(reply).await
    }

    fn push(&self, jobs: impl IntoIterator<Item = Job>) -> Result<()> {
        self.ensure_not_forked()?;
        self.inner.inbox.push(jobs);
        Ok(())
    }

    fn ensure_not_forked(&self) -> Result<()> {
        if self.inner.process == std::process::id() {
            return Ok(());
        }
        Err(Error::lost(sprag_core::Loss::Forked))
    }

    async fn hear(&self, reply: Reply) -> Result<Answer> {
        reply.await.unwrap_or_else(|_| Err(self.gone()))
    }

    fn gone(&self) -> Error {
        self.inner.library.error(ErrorKind::Unavailable, "the thread of the store is gone")
    }

    /// Reads on a thread of its own, so that nobody's renewal waits for it.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Library) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.ensure_not_forked()?;
        let (reply, answer) = oneshot::channel();
        let library = Arc::clone(&self.inner.library);
        let thread = std::thread::Builder::new().name("sprag-reader".into());
        let run = move || drop(reply.send(read(&library)));
        thread.spawn(run).map_err(|error| self.gone().caused_by(error))?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    fn attempt(&self, request: &Request, answer: Answer) -> Result<Attempt> {
        let library = &self.inner.library;
        if let Some(reference) = answer.in_the_way.first() {
            let holder = Holder::new(format!("whoever made {reference}"), "unknown");
            let holders = vec![HolderView::stranger(holder)];
            return Ok(Attempt::Held(Contention { ahead: 0, holders }));
        }
        let Answer { outcome, record, .. } = answer;
        library.with_context(&request.name, &record, &Verdict::default(), |context| {
            outcome.into_attempt(&record, request, context)
        })
    }
}

type Reply = oneshot::Receiver<Result<Answer>>;

/// How long a holder was seen without a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since we first saw its last sign of life.
    pub seen: Duration,
    /// Whether that is longer than its TTL, so that it may be taken over.
    pub stale: bool,
}

#[async_trait]
impl Store for LedgerStore {
    fn capability(&self) -> &Capability {
        &self.inner.library.settings.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        if request.queue {
            self.inner.mailboxes.open(request.lease);
        }
        let companion = self.companions().get(&request.name).cloned();
        let along: Vec<_> = companion.iter().map(Companion::arrival).collect();
        let wish = Wish::Acquire(Box::new(request.clone()));
        let answer = self.ask(&request.name, wish, along).await;
        if !matches!(&answer, Ok(answer) if matches!(answer.outcome, Outcome::Queued { .. })) {
            self.inner.mailboxes.close(request.lease);
        }
        self.attempt(request, answer?)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let jobs = leases
            .iter()
            .map(|renewal| self.job(&renewal.name, Wish::Renew(renewal.clone()), Vec::new()));
        let (jobs, replies): (Vec<_>, Vec<_>) = jobs.unzip();
        self.push(jobs)?;
        let mut renewed = Vec::with_capacity(leases.len());
        for (renewal, reply) in leases.iter().zip(replies) {
            let answer = self.hear(reply).await;
            let answer = answer.map(|answer| answer.outcome.into_renewed(&answer.record, renewal));
            renewed.push(answer);
        }
        Renewed::of_each(renewed)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.inner.mailboxes.open(conversion.lease);
        let name = &conversion.name;
        let answer = self.ask(name, Wish::Convert(conversion.clone()), Vec::new()).await;
        if !matches!(&answer, Ok(answer) if matches!(answer.outcome, Outcome::Queued { .. })) {
            self.inner.mailboxes.close(conversion.lease);
        }
        let Answer { outcome, record, .. } = answer?;
        self.inner.library.with_context(name, &record, &Verdict::default(), |context| {
            outcome.into_converted(conversion, context)
        })
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.inner.mailboxes.close(lease);
        let companion = self.companions().get(name).cloned();
        let along = companion.iter().map(Companion::departure).collect();
        let mut answer = self.ask(name, Wish::Release(lease), along).await?;
        if let Some(branch) = answer.in_the_way.first() {
            // Somebody added to it, so it stays.
            tracing::warn!(target: "sprag::release", lock = %name, %branch, "the branch has moved on and is left there");
            answer = self.ask(name, Wish::Release(lease), Vec::new()).await?;
        }
        self.companions().remove(name);
        Ok(answer.outcome.into_released())
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.ask(name, Wish::Withdraw(lease), Vec::new()).await.map(drop)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let name = name.clone();
        self.read(move |library| {
            library.read(std::slice::from_ref(&name))?;
            library.view(&name).map_or_else(|| Ok(LockView::free(name)), Ok)
        })
        .await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let listing = listing.clone();
        self.read(move |library| list(library, &listing)).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let wish = Wish::Evict(eviction.clone());
        Ok(self.ask(&eviction.name, wish, Vec::new()).await?.outcome.into_evicted())
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.inner.mailboxes.wait(lease).await;
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let query = query.clone();
        self.read(move |library| trail::read(library, &query)).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        if !self.inner.library.settings.notes {
            return Ok(());
        }
        let names: BTreeSet<_> = entries.iter().map(|entry| &entry.name).collect();
        let jobs = names.into_iter().map(|name| {
            let mine = entries.iter().filter(|entry| entry.name == *name).cloned();
            self.job(name, Wish::Note(mine.collect()), Vec::new())
        });
        let (jobs, replies): (Vec<_>, Vec<_>) = jobs.unzip();
        self.push(jobs)?;
        for reply in replies {
            self.hear(reply).await?;
        }
        Ok(())
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.read(|library| library.ledger.diagnose()).await
    }
}

fn list(library: &Library, listing: &Listing) -> Result<Page> {
    let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
    let sent = library.clock.now();
    let found = library.ledger.list(RefName::locks())?;
    let named = found.into_iter().filter_map(|(at, tip)| Some((at.to_lock()?, at, Some(tip))));
    let mut wanted: Vec<_> = named
        .filter(|(name, ..)| name.as_str().starts_with(&listing.prefix))
        .filter(|(name, ..)| listing.after.as_ref().is_none_or(|after| name > after))
        .collect();
    wanted.sort();
    let mut locks = Vec::new();
    for chunk in wanted.chunks(READ_AT_ONCE) {
        library.take_in_readable(chunk, sent)?;
        let views = chunk.iter().filter_map(|(name, ..)| library.view(name));
        locks.extend(
            views.filter(|view| view.is_contended() || (!listing.contended && view.is_locked())),
        );
        if locks.len() > limit {
            break;
        }
    }
    let more = locks.len() > limit;
    locks.truncate(limit);
    let next = if more { locks.last().map(|view| view.name.clone()) } else { None };
    Ok(Page { locks, next })
}
