//! [`SqliteStore`]: the contract of a store on top of one SQLite file.

mod ask;
#[cfg(test)]
mod hand_over;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::record::{Command, Context, Outcome};
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Evicted, Eviction, Grant, LEFT_OUT, Listing, Page,
    Released, Renewal, Renewed, Request,
};
use sprag_core::{Capability, LeaseId, Level, LockName, LockView, Loss, Operation, Result, Store};

use crate::config::SqliteConfig;
use crate::database::Database;
use crate::desk::{Answer, Desk, MAX_WAITERS, Shared, Work};
use crate::error::{STORE, from_io};
use crate::leases::Tenure;
use crate::open;
use crate::queue::Reach;
use crate::worker::Worker;

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;
/// How many leases are renewed before others get the gate.
const RENEWED_AT_ONCE: usize = 256;

/// Locks between the processes of one machine, in a SQLite file of one user or of a group.
///
/// Clones share one session. When the last clone is dropped, or the process ends in any other
/// way, everything the session held is free, except detached leases, which live by their TTL.
/// Each [`SqliteStore::open`] is a session of its own, also within one process.
///
/// # Guarantees
///
/// L3 between the processes of one machine and one boot. A change is decided by a transaction;
/// no clock is compared with another machine's. After a reboot all old locks are free and fences
/// go on above the old ones.
///
/// On a full disk, requests that need space fail with a store-full error, and that includes a
/// release if the log cannot be reused. Dropping the store frees its locks without writing.
///
/// A process that is stopped in the middle of a write makes the others fail as busy until it
/// goes on or is killed; no lock is given out meanwhile.
///
/// Somebody who deletes the store's files while they are in use takes the locks away from their
/// holders, who learn of it at their next renewal; fences keep growing.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("sprag.db");
/// use sprag_core::{LockName, Store};
/// use sprag_sqlite::SqliteStore;
///
/// let store = SqliteStore::open(&path)?;
/// assert!(!store.inspect(&LockName::new("report")?).await?.is_locked());
/// # Ok::<(), sprag_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    capability: Capability,
    shared: Arc<Shared>,
    /// For requests that find the gate free.
    inline: Mutex<Desk>,
    /// For looking, which needs no gate and works while it is stuck.
    reader: Mutex<Option<Database>>,
    /// For what others wait for.
    worker: Worker,
    /// For wishes.
    patient: Worker,
}

impl SqliteStore {
    /// Opens the store in the database file at `path`, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// Refused or corrupt if the place cannot be used or the file is somebody else's (it is then
    /// left as it is), busy if another process does not finish its write.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with_config(SqliteConfig::new(path))
    }

    /// Opens the store as `config` says.
    ///
    /// # Errors
    ///
    /// As [`SqliteStore::open`].
    pub fn with_config(config: SqliteConfig) -> Result<Self> {
        let (shared, desk) = open::open(config)?;
        Ok(Self {
            inner: Arc::new(Inner {
                capability: Self::ability(),
                worker: Worker::new(Arc::clone(&shared)),
                patient: Worker::patient(Arc::clone(&shared)),
                shared,
                inline: Mutex::new(desk),
                reader: Mutex::default(),
            }),
        })
    }

    /// What every SQLite store can do.
    pub const fn ability() -> Capability {
        let mut capability = Capability::full(STORE, Level::Fenced);
        capability.max_waiters = MAX_WAITERS;
        capability
    }

    /// The database file, with all links resolved.
    pub fn path(&self) -> &Path {
        &self.inner.shared.place.database
    }

    /// The session file, locked as long as this session lives. A child process that inherits it
    /// keeps the session, and all it holds, alive after the death of this process; the store
    /// still ends the session when its last clone is dropped.
    pub fn session_file(&self) -> &File {
        self.inner.shared.session.file()
    }

    /// Does the housekeeping now: copies the log into the database and forgets free records
    /// beyond the configured number. It runs by itself while the store is in use.
    ///
    /// # Errors
    ///
    /// If the disk or the database does not allow it.
    pub fn maintain(&self) -> Result<()> {
        self.inner.shared.tidy(true)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::process::id() == self.shared.session.process {
            self.worker.stop();
            self.patient.stop();
            self.shared.wakeups.stop();
            // From here on everything this session held is free; who waits for it is told by
            // the kernel. Threads that end later find nothing to do.
            self.shared.session.end();
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn capability(&self) -> &Capability {
        &self.inner.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let shared = &self.inner.shared;
        if request.queue {
            shared.wakeups.mailboxes().open(request.lease);
        }
        // Whoever handed the lock over has told its fence.
        if let Some(fence) = shared.wakeups.enter(request.lease, &shared.force)
            && shared.is_intact()
        {
            self.inner.check_process().map_err(|error| error.during(Operation::Acquire))?;
            shared.wakeups.unwatch(request.lease);
            // Who is handed the lock pushed nobody aside.
            let grant = Grant { fence, mode: request.mode, took_over: false };
            return Ok(Attempt::Granted(grant));
        }
        let command = || Command::acquire(request, shared.session.id);
        let (name, lease) = (&request.name, request.lease);
        let Answer { applied, unread, place, .. } =
            self.run_waiting(Operation::Acquire, name, lease, command).await?;
        let record = applied.record;
        let mut attempt = shared
            .with_context(|context| applied.outcome.into_attempt(&record, request, context))
            .map_err(|error| error.at(STORE))?;
        match (&mut attempt, place) {
            (Attempt::Held(contention), _) => contention.ahead += unread,
            (Attempt::Queued(_), Some(place)) => shared.wakeups.await_grant(lease, place),
            _ => {}
        }
        Ok(attempt)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let mut renewed = Vec::with_capacity(leases.len());
        let session = self.inner.shared.session.id;
        for renewal in leases {
            match self.settle(&renewal.name, renewal.lease, renewal.bind != Bind::Keep).await {
                // The renewal itself will say so.
                Err(error) if error.is_corrupt() => {}
                settled => settled?,
            }
        }
        // The places of a crowd are renewed behind what is held, also by other processes.
        let wakeups = &self.inner.shared.wakeups;
        let waits = leases.iter().all(|renewal| wakeups.place_of(renewal.lease).is_some());
        for chunk in leases.chunks(RENEWED_AT_ONCE) {
            let commands = chunk.iter().map(|r| (r.name.clone(), Command::renew(r, session)));
            let work = Work { waits, ..Work::of(commands.collect()) };
            let answers = self.run(Operation::Renew, work).await?;
            renewed.extend(chunk.iter().zip(answers).map(|(renewal, answer)| match answer {
                Ok(Answer { applied, .. }) => {
                    applied.outcome.into_renewed(&applied.record, renewal)
                }
                Err(error) => {
                    // Nobody else gets a lock whose record is damaged, but that this lease
                    // still has it cannot be said either.
                    tracing::error!(%error, "a lock is lost");
                    Renewed::Lost(Loss::StateLost)
                }
            }));
        }
        Ok(renewed)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let shared = &self.inner.shared;
        shared.wakeups.mailboxes().open(conversion.lease);
        self.settle(&conversion.name, conversion.lease, true).await?;
        let command = || Command::convert(conversion);
        let (name, lease) = (&conversion.name, conversion.lease);
        let answer = self.run_waiting(Operation::Convert, name, lease, command).await?;
        shared
            .with_context(|context| answer.applied.outcome.into_converted(conversion, context))
            .map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let wakeups = &self.inner.shared.wakeups;
        let mut tenure = Tenure::default();
        if wakeups.holds(lease) {
            // A forked child must not let anybody in on behalf of its parent.
            let same = self.inner.check_process();
            same.map_err(|error| error.during(Operation::Release).on(name))?;
            tenure = wakeups.pass_on(lease);
        }
        let Tenure { predecessor, heir } = tenure;
        wakeups.unwatch(lease);
        let ended = predecessor.into_iter().chain([lease]);
        let commands = ended.map(|lease| (name.clone(), Command::Release { lease })).collect();
        let answer = self.run_last(Operation::Release, name, commands).await?;
        let last = answer.applied.record.fence;
        Ok(match answer.applied.outcome {
            // Our heir was faster, and has written it for us. The record remembers the last few that
            // were released; in a crowd more than that may have come and gone by now.
            Outcome::Gone(Loss::Released | Loss::StateLost)
                if heir.is_some_and(|heir| heir.fence <= last) =>
            {
                Released::Freed
            }
            outcome => outcome.into_released(),
        })
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let wakeups = &self.inner.shared.wakeups;
        wakeups.unwatch(lease);
        self.settle(name, lease, true).await?;
        self.run_one(Operation::Release, name, Command::Withdraw { lease }).await?;
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.read(Operation::Inspect, |database, context| {
            let loaded = database.load(name, Reach::All).map_err(|error| error.on(name))?;
            Ok(match loaded.row {
                Some(_) => loaded.record.view(name, context),
                None => LockView::free(name.clone()),
            })
        })
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let after = listing.after.as_ref().map(LockName::as_str);
        let mut views = Vec::new();
        self.read(Operation::List, |database, context| {
            // Many locks are held by few processes: ask for each of them once.
            let known = RefCell::new(HashMap::new());
            let is_dead = |session| {
                let mut known = known.borrow_mut();
                *known.entry(session).or_insert_with(|| (context.is_dead)(session))
            };
            let context = Context { is_dead: &is_dead, ..*context };
            database.scan(&listing.prefix, after, listing.contended, |name, loaded| {
                if !name.starts_with(&listing.prefix) {
                    return Ok(false);
                }
                // One damaged record must not hide the other locks.
                let left_out = |error: sprag_core::Error| {
                    tracing::warn!(target: LEFT_OUT, lock = name, %error, "a record is left out");
                    Ok(true)
                };
                let name = match LockName::new(name) {
                    Ok(name) => name,
                    Err(error) => return left_out(error),
                };
                let loaded = match loaded {
                    Err(error) if error.is_corrupt() => return left_out(error),
                    loaded => loaded?,
                };
                let view = loaded.record.view(&name, &context);
                if view.is_contended() || (!listing.contended && view.is_locked()) {
                    views.push(view);
                }
                Ok(views.len() <= limit)
            })
        })?;
        let more = views.len() > limit;
        views.truncate(limit);
        let next = views.last().filter(|_| more).map(|view| view.name.clone());
        Ok(Page { locks: views, next })
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let command = Command::evict(eviction);
        let answer = self.run_one(Operation::Evict, &eviction.name, command).await?;
        Ok(answer.applied.outcome.into_evicted())
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let (trail, place) = (&self.inner.shared.trail, &self.inner.shared.place);
        let entries = trail.read(query).map_err(|e| from_io("read", &place.trail, e));
        entries.map_err(|error| error.during(Operation::Audit))
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let work = Work { notes: entries.to_vec(), ..Work::default() };
        self.run(Operation::Audit, work).await.map(drop)
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        let wakeups = &self.inner.shared.wakeups;
        let mut wait = std::pin::pin!(wakeups.mailboxes().wait(lease));
        std::future::poll_fn(|context| {
            let polled = wait.as_mut().poll(context);
            if polled.is_pending() {
                wakeups.attend();
            }
            polled
        })
        .await;
    }

    fn evictions(&self) -> Option<Evictions> {
        Some(self.inner.shared.wakeups.evictions())
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        crate::diagnose::findings(&self.inner.shared.place.database).map_err(|e| e.at(STORE))
    }

    fn lifeline(&self) -> Option<OwnedFd> {
        // A duplicate shares the file lock, and the standard library makes it close on exec.
        self.session_file().try_clone().ok().map(OwnedFd::from)
    }
}
