//! [`AdvisoryStore`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::Command;
use sprag_core::record::wire::Answer;
use sprag_core::store::{
    Attempt, Bind, Contention, Conversion, Converted, Evicted, Eviction, Listing, Page, Released,
    Renewal, Renewed, Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, Holder, HolderView, LeaseId, Level, LockName, LockView,
    Operation, Result, SessionId, Store,
};
use tokio_postgres::types::Type;

use super::key::key;
use super::pulse::{Pulse, Vital};
use crate::config::{LockKind, PostgresConfig};
use crate::error::STORE;
use crate::lease::{PostgresStore, answers, no_row, written};
use crate::link::Call;

const APPLY: &str = "SELECT answer::text, session, outsider, leaving FROM sprag.advisory_v1($1, $2, $3::text::jsonb, $4)";
const RENEW: &str =
    "SELECT answer::text, session FROM sprag.renew_advisory_v1($1, $2, $3::text::jsonb, $4)";
const LOOK_OUTSIDE: &str = "SELECT sprag.look_outside_v1($1, $2, $3)";
const BURY: &str = "SELECT sprag.bury_all_sessions_v1($1)::text";
const URGE: &str = "SELECT sprag.urge_v1($1, $2), pg_sleep(0.01)::text";
/// What is worth preparing.
pub(crate) const PREPARED: &[&str] = &[APPLY, RENEW];

/// How long a process that has lost a lock may take to let go of it, before it is disconnected.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a process is urged that was pushed aside by somebody who does not wait.
const URGES: usize = 30;

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
    capability: Capability,
    rows: PostgresStore,
    mailboxes: Arc<Mailboxes>,
    pulse: Arc<Pulse>,
    /// What is held, and in which session.
    held: Mutex<HashMap<LeaseId, String>>,
    max_locks: usize,
}

/// An answer, who did it, and who is in its way.
struct Done {
    answer: Answer,
    session: String,
    outsider: Option<String>,
    leaving: bool,
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
        let (vital, max_locks) = (vital(), config.max_locks);
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
        let (vital, max_locks) = (vital(), config.max_locks);
        let config = config.kind(LockKind::Advisory);
        let rows = PostgresStore::connect_with(config, Some(vital.clone())).await?;
        Ok(Self::new(rows, vital, max_locks))
    }

    fn new(rows: PostgresStore, vital: Vital, max_locks: usize) -> Self {
        let Vital { pulse, mailboxes } = vital;
        let (capability, held) = (Self::ability(), Mutex::default());
        Self { capability, rows, mailboxes, pulse, held, max_locks }
    }

    /// Runs a command on the server.
    async fn run(&self, operation: Operation, name: &LockName, command: &Command) -> Result<Done> {
        let sent = BootClock.now();
        let call = Call::new(APPLY)
            .text(&self.rows.namespace)
            .text(name.as_str())
            .text(written(command, self.capability.max_waiters))
            .with(key(&self.rows.namespace, name.as_str()), Type::INT8);
        let rows = self.rows.ask(operation, call).await.map_err(|error| error.on(name))?;
        let answer = answers(&rows).and_then(|all| all.into_iter().next().ok_or_else(no_row));
        let answer = answer.map_err(|error| error.during(operation).on(name))?;
        self.rows.link.learn(answer.now_us / 1000, sent);
        let row = &rows[0];
        Ok(Done { answer, session: row.get(1), outsider: row.get(2), leaving: row.get(3) })
    }

    /// Refuses more locks than the server's table has room for, before it is full for everybody.
    fn admit(&self, request: &Request) -> Result<()> {
        let held = self.held();
        // What was held in a session that is over takes no room there.
        let full = held.len() >= self.max_locks
            && held.values().filter(|session| self.pulse.is_sure(session)).count()
                >= self.max_locks;
        if !full || held.contains_key(&request.lease) {
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

    fn keep(&self, lease: LeaseId, session: String) {
        self.held().insert(lease, session);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<LeaseId, String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks those who have the lock without right to let go of it, until they do.
    async fn urge(&self, name: &LockName, patience: Duration, times: usize) -> Result<()> {
        for _ in 0..times {
            let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
            let number = key(&self.rows.namespace, name.as_str());
            let call = Call::new(URGE).with(number, Type::INT8).with(patience, Type::INT8);
            let rows = self.rows.ask(Operation::Evict, call).await?;
            if rows.first().is_none_or(|row| row.get::<_, i64>(0) == 0) {
                break;
            }
        }
        Ok(())
    }
}

fn vital() -> Vital {
    Vital { pulse: Arc::default(), mailboxes: Arc::default() }
}

/// The session is put in by the server, which knows it.
fn any_session() -> SessionId {
    SessionId::from_u128(0)
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
        self.admit(request)?;
        if request.queue {
            self.mailboxes.open(request.lease);
        }
        let mut command = Command::acquire(request, any_session());
        if let Command::Acquire(acquire) = &mut command {
            // One that lay in a buffer until its caller gave up must not take the lock.
            acquire.not_after_ms = Some(self.rows.link.not_after_ms());
        }
        let mut done = self.run(Operation::Acquire, &request.name, &command).await?;
        if done.leaving && !request.queue {
            // Who does not come back has to wait here, or leaves what it was granted.
            self.urge(&request.name, PATIENCE / 10, URGES).await?;
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
        let Done { answer, session, .. } = done;
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        match &mut attempt {
            Ok(Attempt::Granted(_)) => self.keep(request.lease, session),
            Ok(Attempt::Held(contention)) => contention.ahead = answer.waiting,
            _ => {}
        }
        if !matches!(attempt, Ok(Attempt::Queued(_))) {
            self.mailboxes.close(request.lease);
        }
        attempt.map_err(|error| error.at(STORE))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        if let Some(detached) = leases.iter().find(|renewal| renewal.bind == Bind::Detach) {
            let message = "an advisory lock ends with its process: use mode=lease for tickets";
            let error = Error::new(ErrorKind::Unsupported, Operation::Renew, message);
            return Err(error.on(&detached.name).at(STORE));
        }
        let names: Vec<String> = leases.iter().map(|renewal| renewal.name.to_string()).collect();
        let keys: Vec<i64> = names.iter().map(|name| key(&self.rows.namespace, name)).collect();
        let commands = leases.iter().map(|renewal| {
            let renewal = Renewal { bind: Bind::Keep, ..renewal.clone() };
            written(&Command::renew(&renewal, any_session()), self.capability.max_waiters)
        });
        let commands: Vec<_> = commands.collect();
        let call = Call::new(RENEW)
            .text(&self.rows.namespace)
            .with(names, Type::TEXT_ARRAY)
            .text(format!("[{}]", commands.join(",")))
            .with(keys, Type::INT8_ARRAY);
        let rows = self.rows.ask(Operation::Renew, call).await?;
        let answers = answers(&rows).map_err(|error| error.during(Operation::Renew))?;
        if answers.len() != leases.len() {
            return Err(no_row().during(Operation::Renew));
        }
        let renewed = answers.into_iter().zip(leases).zip(&rows).map(|((answer, lease), row)| {
            let renewed = answer.outcome.into_renewed(&answer.record, lease);
            if matches!(renewed, Renewed::Held(_)) {
                self.keep(lease.lease, row.get(1));
            }
            renewed
        });
        Ok(renewed.collect())
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.mailboxes.open(conversion.lease);
        let command = Command::convert(conversion);
        let done = self.run(Operation::Convert, &conversion.name, &command).await?;
        let context = done.answer.context(self.capability.max_waiters);
        let converted = match done {
            Done { outsider: Some(_), leaving: true, .. } => Ok(Converted::Waiting),
            Done { outsider: Some(_), .. } => Ok(Converted::Blocked),
            Done { answer, .. } => answer.outcome.into_converted(conversion, &context),
        };
        if !matches!(converted, Ok(Converted::Waiting)) {
            self.mailboxes.close(conversion.lease);
        }
        converted.map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.mailboxes.close(lease);
        let done = self.run(Operation::Release, name, &Command::Release { lease }).await?;
        self.held().remove(&lease);
        Ok(done.answer.outcome.into_released())
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.run(Operation::Release, name, &Command::Withdraw { lease }).await.map(drop)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let call = Call::new(LOOK_OUTSIDE)
            .text(&self.rows.namespace)
            .text(name.as_str())
            .with(key(&self.rows.namespace, name.as_str()), Type::INT8);
        let rows = self.rows.ask(Operation::Inspect, call).await.map_err(|error| error.on(name))?;
        let outsider: Option<String> = rows.first().and_then(|row| row.get(0));
        let mut view = self.rows.inspect(name).await?;
        if view.holders.is_empty() {
            view.holders.extend(outsider.as_deref().map(stranger));
        }
        Ok(view)
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let call = Call::new(BURY).text(&self.rows.namespace);
        self.rows.ask(Operation::List, call).await?;
        self.rows.list(listing).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let command = Command::evict(eviction);
        let done = self.run(Operation::Evict, &eviction.name, &command).await?;
        let evicted = done.answer.outcome.into_evicted();
        if matches!(evicted, Evicted::Broken(_)) {
            self.urge(&eviction.name, PATIENCE, URGES * 5).await?;
        }
        Ok(evicted)
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.mailboxes.wait(lease).await;
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.held().get(&lease).is_some_and(|session| !self.pulse.is_sure(session))
    }

    async fn severed(&self) {
        self.pulse.ended().await;
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        self.rows.audit(query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        self.rows.note(entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let mut findings = self.rows.diagnose().await?;
        // These are other than in rows alone.
        let about_rows = |finding: &Finding| {
            ["deaths:", "wake-ups:"].iter().any(|it| finding.text.starts_with(it))
        };
        findings.retain(|finding| !about_rows(finding));
        findings.extend([
            Finding::good("wake-ups: by LISTEN and NOTIFY, on the connection that has the locks"),
            Finding::good("deaths: the server frees what a dead process held when its connection ends"),
            Finding::note(
                "cut off: a holder gives up 5.5 s after the last answer; the server frees after 11 s",
            ),
        ]);
        Ok(findings)
    }
}
