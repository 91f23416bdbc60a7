//! [`AdvisoryStore`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::record::{Command, Outcome};
use sprag_core::store::{
    Attempt, Bind, Contention, Conversion, Converted, Evicted, Eviction, Grant, Listing, Page,
    Released, Renewal, Renewed, Request, Takeover,
};
use sprag_core::{
    Capability, Error, ErrorKind, Holder, HolderView, LeaseId, Level, LockName, LockView, Loss,
    Operation, Result, Store,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::ask::{Done, Either, any_session};
use super::bare::{LONGEST, Line, Pause, TELL};
use super::holdings::Holdings;
use super::key::key;
use super::pulse::Vital;
use crate::config::{LockKind, PostgresConfig};
use crate::error::{Misfit, STORE};
use crate::lease::parts::Parts;
use crate::lease::{PostgresStore, passing, plain};
use crate::link::Call;

const LOOK_OUTSIDE: &str = "SELECT outsider, is_bare FROM sprag.look_outside_v1($1, $2, $3)";
const LOOK_BARE: &str = "SELECT sprag.look_bare_v1($1)";
const BURY: &str = "SELECT sprag.bury_all_sessions_v1($1)::text";
/// How long a process that has lost a lock may take to let go of it, before it is disconnected.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long who takes a lock by force waits for its holder: less than a client waits for an answer.
const FORCED: Duration = Duration::from_secs(4);

/// Until when a request waits here for others to write down what they have, or to let go.
fn patience(request: &Request) -> Moment {
    BootClock.now().plus(match request.takeover {
        // What it is granted counts from when it asked.
        Takeover::Force => FORCED.min(request.ttl / 2),
        Takeover::No | Takeover::Overdue(_) => LONGEST,
    })
}

/// Session locks of a PostgreSQL database, one for each lock, all on one connection.
///
/// # Guarantees
///
/// L2 while the server lives. A lock is held by its record and by the session lock on its
/// [key](super::key): among sprag's own the record decides, as in a [`PostgresStore`], and whoever
/// uses `pg_advisory_lock` on the key is excluded as well. All locks end with the connection: the
/// server frees them at once when the process dies, and within 11 s when it is cut off; the guards
/// are lost half that time after the last answer, whatever their TTL.
#[derive(Debug)]
pub struct AdvisoryStore {
    pub(super) capability: Capability,
    pub(super) rows: PostgresStore,
    pub(super) holdings: Arc<Holdings>,
    max_locks: usize,
}

impl AdvisoryStore {
    /// What every PostgreSQL can do.
    pub const fn ability() -> Capability {
        let mut capability = Capability::full(STORE, Level::LeaseExclusive);
        capability.detached = false;
        capability
    }

    /// Connects, makes the schema if it is not there, and blocks until it is done.
    ///
    /// # Errors
    ///
    /// As [`PostgresStore::open`]; refused if there is a connection pool in between.
    pub fn open(config: PostgresConfig) -> Result<Self> {
        let (vital, max_locks) = (Vital::default(), config.max_locks);
        let rows = PostgresStore::open_with(config.kind(LockKind::Advisory), Some(vital.clone()))?;
        Ok(Self::new(rows, vital, max_locks))
    }

    /// Connects, and makes the schema if it is not there.
    ///
    /// # Errors
    ///
    /// As [`AdvisoryStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connection is closed.
    pub async fn connect(config: PostgresConfig) -> Result<Self> {
        let (vital, max_locks) = (Vital::default(), config.max_locks);
        let config = config.kind(LockKind::Advisory);
        let rows = PostgresStore::connect_with(config, Some(vital.clone())).await?;
        Ok(Self::new(rows, vital, max_locks))
    }

    fn new(rows: PostgresStore, vital: Vital, max_locks: usize) -> Self {
        Self { capability: Self::ability(), rows, holdings: vital.holdings, max_locks }
    }

    /// Refuses more locks than the server's table has room for, before it is full for everybody.
    fn admit(&self, request: &Request) -> Result<()> {
        if !self.holdings.is_full(request.lease, self.max_locks) {
            return Ok(());
        }
        let message = format!(
            "this process holds {} advisory locks and no more are taken, so that the server's \
             table has room for others: release some, raise max_locks in the URL and \
             max_locks_per_transaction of the server, or use mode=lease",
            self.max_locks
        );
        Err(Error::new(ErrorKind::StoreFull, Operation::Acquire, message).on(&request.name))
    }

    fn keep(&self, request: &Request, session: String) {
        self.keep_bare(request, session, None);
    }

    fn keep_bare(&self, request: &Request, session: String, line: Option<Line>) {
        let until = BootClock.now().plus(request.ttl);
        self.holdings.keep_bare(request.lease, &request.name, session, until, line);
    }

    /// Who is next waits for the end of others' sessions as well.
    fn watch(&self, name: &LockName, done: &Done) {
        if done.answer.outcome != (Outcome::Queued { ahead: 0 }) {
            return;
        }
        let sessions = done.answer.record.holders.iter().filter_map(|hold| hold.session);
        let others = sessions.map(|it| it.to_string()).filter(|it| *it != done.session);
        others.for_each(|session| self.holdings.watched.add(session, name));
    }

    /// Who has a lock that nobody has by its record.
    async fn look_outside(&self, operation: Operation, name: &LockName) -> Result<Option<String>> {
        let mut pause = Pause::short(&self.rows.link);
        loop {
            let call = Call::new(LOOK_OUTSIDE)
                .text(&self.rows.namespace)
                .text(name.as_str())
                .key(key(&self.rows.namespace, name.as_str()));
            let rows = self.rows.ask(operation, call).await.map_err(|error| error.on(name))?;
            let read = |row: &Row| -> Result<(Option<String>, bool), Misfit> {
                Ok((row.try_get(0)?, row.try_get(1)?))
            };
            let row =
                self.rows.only(&rows).and_then(|it| read(it).map_err(|e| self.rows.misfit(&e)));
            let (outsider, is_bare) = row.map_err(|error| error.during(operation).on(name))?;
            if !is_bare || !pause.has_waited().await {
                return Ok(outsider);
            }
        }
    }

    /// What a waiter was granted meanwhile by the release of another of this process.
    fn handed(&self, request: &Request) -> Option<Attempt> {
        let wakeups = &self.holdings.wakeups;
        let fence = wakeups.enter(request.lease)?;
        let Some(session) = self.holdings.handed(request.lease) else {
            // It is not inside after all.
            wakeups.leave(request.lease);
            return None;
        };
        self.keep(request, session);
        Some(Attempt::Granted(Grant { fence, mode: request.mode, took_over: false }))
    }
}

/// Somebody who has the lock's key, and is not known.
fn stranger(who: &str) -> HolderView {
    HolderView::stranger(Holder::new(who, "this server, without sprag"))
}

#[async_trait]
impl Store for AdvisoryStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let wakeups = &self.holdings.wakeups;
        if request.queue
            && let Some(granted) = self.handed(request)
        {
            return Ok(granted);
        }
        self.admit(request)?;
        if request.queue {
            wakeups.open(request.lease);
        }
        let until = patience(request);
        let mut pause = Pause::until(&self.rows.link, until);
        let mut done = loop {
            let place = self.rows.link.place().await;
            if request.queue
                && let Some(granted) = self.handed(request)
            {
                return Ok(granted);
            }
            match self.acquire(request, place).await? {
                Either::Short(entry) => {
                    self.keep_bare(request, entry.session, entry.line);
                    wakeups.close(request.lease);
                    return Ok(plain::granted(entry.fence));
                }
                // Who has it is about to write that down, or to let go of it.
                Either::Long(done) if done.bare && pause.has_waited().await => {}
                Either::Long(done) => break *done,
            }
        };
        if done.leaving && !request.queue {
            // Who does not come back has to wait here, or leaves what it was granted.
            self.urge(&request.name, PATIENCE / 10, until).await?;
            let command = Command::acquire(request, any_session());
            done = self.run(Operation::Acquire, &request.name, &command).await?;
            if done.leaving {
                let release = Command::Release { lease: request.lease };
                self.run(Operation::Release, &request.name, &release).await?;
            }
        }
        if let Some(who) = &done.outsider {
            let contention = Contention { ahead: 0, holders: vec![stranger(who)] };
            let queued = request.queue && done.leaving;
            return Ok(if queued {
                Attempt::Queued(contention)
            } else {
                Attempt::Held(contention)
            });
        }
        self.watch(&request.name, &done);
        let Done { answer, session, .. } = done;
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        match &mut attempt {
            Ok(Attempt::Granted(_)) => self.keep(request, session),
            Ok(Attempt::Held(contention)) => contention.ahead = answer.waiting,
            // Nobody has entered yet, and in the session that there is now it may be asked for again.
            Ok(Attempt::Gone(loss)) if *loss == Loss::SessionDied => *loss = Loss::StateLost,
            _ => {}
        }
        if !matches!(attempt, Ok(Attempt::Queued(_))) {
            wakeups.close(request.lease);
        }
        attempt.map_err(|error| error.at(STORE))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        if let Some(detached) = leases.iter().find(|renewal| renewal.bind == Bind::Detach) {
            let message = "an advisory lock ends with its process: use mode=lease for tickets";
            let error = Error::new(ErrorKind::Unsupported, Operation::Renew, message);
            return Err(error.on(&detached.name).at(STORE));
        }
        let wakeups = &self.holdings.wakeups;
        let release =
            |name: LockName, lease| async move { self.leave(Operation::Renew, &name, lease).await };
        let unsettled = passing::settle_all(wakeups, leases, release).await;
        let mut parts = Parts::new(leases);
        while let Some((rest, how)) = parts.next() {
            parts.take(self.renew_some(rest, how).await)?;
        }
        let renewed = parts.finish().map_err(|error| error.during(Operation::Renew))?;
        Ok(passing::judged(wakeups, leases, renewed, &unsettled))
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let mailboxes = &self.holdings.wakeups.mailboxes;
        mailboxes.open(conversion.lease);
        self.settle(Operation::Convert, &conversion.name, conversion.lease).await?;
        let command = Command::convert(conversion);
        let done = self.run(Operation::Convert, &conversion.name, &command).await?;
        self.watch(&conversion.name, &done);
        let context = done.answer.context(self.capability.max_waiters);
        let converted = match done {
            Done { outsider: Some(_), leaving: true, .. } => Ok(Converted::Waiting),
            Done { answer, .. } => answer.outcome.into_converted(conversion, &context),
        };
        if !matches!(converted, Ok(Converted::Waiting)) {
            mailboxes.close(conversion.lease);
        }
        converted.map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let PostgresStore { passing, link, .. } = &self.rows;
        let release = |lease| self.leave(Operation::Release, name, lease);
        let released = passing.give_back(&self.holdings.wakeups, link, lease, release).await?;
        self.holdings.leave(lease);
        Ok(released)
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.settle(Operation::Release, name, lease).await?;
        self.run(Operation::Release, name, &Command::Withdraw { lease }).await.map(drop)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let outsider = self.look_outside(Operation::Inspect, name).await?;
        let mut view = self.rows.inspect(name).await?;
        if view.holders.is_empty() {
            view.holders.extend(outsider.as_deref().map(stranger));
        }
        Ok(view)
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let call = Call::new(BURY).text(&self.rows.namespace);
        self.rows.ask(Operation::List, call).await?;
        let mut pause = Pause::short(&self.rows.link);
        loop {
            let call = Call::new(LOOK_BARE).text(&self.rows.namespace);
            let rows = self.rows.ask(Operation::List, call).await?;
            let is_bare = rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
            if !is_bare || !pause.has_waited().await {
                return self.rows.list(listing).await;
            }
        }
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let command = Command::evict(eviction);
        let run = || self.run(Operation::Evict, &eviction.name, &command);
        let mut evicted = match self.rows.repair(eviction).await? {
            Some(repaired) => repaired,
            None => run().await?.answer.outcome.into_evicted(),
        };
        if !matches!(evicted, Evicted::Broken(_)) {
            // It may not have been written down yet who has it.
            self.look_outside(Operation::Evict, &eviction.name).await?;
            evicted = run().await?.answer.outcome.into_evicted();
        }
        let until = BootClock.now().plus(3 * PATIENCE);
        if matches!(evicted, Evicted::Broken(_))
            && let Some(who) = self.urge(&eviction.name, PATIENCE, until).await?
        {
            let message = format!("the lock is broken, and still in the way is {who}");
            let error = Error::new(ErrorKind::Refused, Operation::Evict, message);
            return Err(error.on(&eviction.name).at(STORE));
        }
        Ok(evicted)
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.holdings.wakeups.mailboxes.wait(lease).await;
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.holdings.is_severed(lease)
    }

    async fn severed(&self) {
        tokio::select! {
            () = self.holdings.pulse.ended() => {}
            () = self.holdings.wakeups.severed() => {}
        }
    }

    fn evictions(&self) -> Option<Evictions> {
        Some(self.holdings.wakeups.evictions.subscribe())
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        if let Some(visits) = self.holdings.visits.take() {
            let call = Call::new(TELL).with(visits, Type::TEXT_ARRAY);
            self.rows.ask(Operation::Audit, call).await?;
        }
        self.rows.audit(query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        self.rows.note(entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let mut findings = self.rows.diagnose().await?;
        // These are other than in rows alone.
        let about_rows = |finding: &Finding| {
            ["deaths:", "wake-ups:", "persistence:"].iter().any(|it| finding.text.starts_with(it))
        };
        findings.retain(|finding| !about_rows(finding));
        findings.extend([
            Finding::good(
                "persistence: none is needed, as locks end with the server; after a crash nobody gets \
                 one for 6 s",
            ),
            Finding::good("wake-ups: by LISTEN and NOTIFY, on the connection that has the locks"),
            Finding::good("deaths: the server frees what a dead process held when its connection ends"),
            Finding::note(
                "cut off: a holder gives up 5.5 s after the last answer; the server frees after 11 s",
            ),
        ]);
        Ok(findings)
    }
}
