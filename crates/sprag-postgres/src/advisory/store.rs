//! [`AdvisoryStore`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::record::Command;
use sprag_core::record::wire::Answer;
use sprag_core::store::{
    Attempt, Bind, Contention, Conversion, Converted, Evicted, Eviction, Grant, Listing, Page,
    Released, Renewal, Renewed, Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, Fence, Holder, HolderView, LeaseId, Level, LockName, LockView,
    Operation, Result, SessionId, Store,
};
use tokio_postgres::types::Type;

use super::holdings::Holdings;
use super::key::key;
use super::pulse::Vital;
use crate::config::{LockKind, PostgresConfig};
use crate::error::{STORE, strange_answer};
use crate::lease::plain::{self, Plain};
use crate::lease::{LEAVE, PostgresStore, TAKE, answers, no_row, written};
use crate::link::Call;

const APPLY: &str = "SELECT sprag.advisory_v1($1, $2, $3::text::jsonb, $4)::text";
const RENEW: &str =
    "SELECT answer::text, session FROM sprag.renew_advisory_v1($1, $2, $3::text::jsonb, $4)";
const LOOK_OUTSIDE: &str = "SELECT sprag.look_outside_v1($1, $2, $3)";
const BURY: &str = "SELECT sprag.bury_all_sessions_v1($1)::text";
const URGE: &str = "SELECT left_over, spared, pg_sleep(0.01)::text FROM sprag.urge_v1($1, $2)";
/// What is worth preparing.
pub(crate) const PREPARED: &[&str] = &[APPLY, TAKE, LEAVE, RENEW];

/// The server knows where a session is woken that has locks.
const NO_CHANNEL: Option<&str> = None;
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
    holdings: Arc<Holdings>,
    max_locks: usize,
}

/// An answer, who did it, and who is in its way.
struct Done {
    answer: Answer,
    session: String,
    outsider: Option<String>,
    leaving: bool,
}

/// What the answer says about the session lock.
#[derive(serde::Deserialize)]
struct Grip {
    session: String,
    outsider: Option<String>,
    leaving: bool,
}

impl Done {
    fn read(text: &str) -> Result<Self> {
        let answer = Answer::read(text).map_err(strange_answer)?;
        let Grip { session, outsider, leaving } =
            serde_json::from_str(text).map_err(strange_answer)?;
        Ok(Self { answer, session, outsider, leaving })
    }
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

    /// Runs a command on the server.
    async fn run(&self, operation: Operation, name: &LockName, command: &Command) -> Result<Done> {
        let call = Call::new(APPLY)
            .text(&self.rows.namespace)
            .text(name.as_str())
            .text(written(command, self.capability.max_waiters))
            .with(key(&self.rows.namespace, name.as_str()), Type::INT8);
        match self.send(operation, name, call).await? {
            Either::Long(done) => Ok(*done),
            Either::Short(..) => Err(strange_answer("it is short").during(operation).on(name)),
        }
    }

    /// Sends a command, which may go the short way.
    async fn send(&self, operation: Operation, name: &LockName, call: Call) -> Result<Either> {
        let sent = BootClock.now();
        let rows = self.rows.ask(operation, call).await.map_err(|error| error.on(name))?;
        let read = |text: &str| match Plain::read(text)? {
            Plain::Short { now_us, fence, session } => Ok((now_us, Either::Short(fence, session))),
            Plain::Long(_) => {
                Done::read(text).map(|done| (done.answer.now_us, Either::Long(Box::new(done))))
            }
        };
        let answer = rows.first().ok_or_else(no_row).and_then(|row| read(row.get(0)));
        let (now_us, answer) = answer.map_err(|error| error.during(operation).on(name))?;
        self.rows.link.learn(now_us / 1000, sent);
        Ok(answer)
    }

    /// Asks for the lock, the short way if that may be.
    async fn acquire(&self, request: &Request) -> Result<Either> {
        let mut command = Command::acquire(request, any_session());
        // One that lay in a buffer until its caller gave up must not take the lock.
        let not_after_ms = self.rows.link.not_after_ms();
        if let Command::Acquire(acquire) = &mut command {
            acquire.not_after_ms = Some(not_after_ms);
        }
        let name = &request.name;
        if !plain::may_be(request) {
            let done = self.run(Operation::Acquire, name, &command).await?;
            return Ok(Either::Long(Box::new(done)));
        }
        let call = Call::new(TAKE).text(&self.rows.namespace).text(name.as_str());
        let call = call.text(written(&command, self.capability.max_waiters));
        let call = plain::wish(call, request, not_after_ms).with(NO_CHANNEL, Type::TEXT);
        let call = call.with(key(&self.rows.namespace, name.as_str()), Type::INT8);
        self.send(Operation::Acquire, name, call).await
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

    /// Renews in one statement, as many of the first as there is time for.
    async fn renew_some(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
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
        let sent = BootClock.now();
        let rows = self.rows.ask(Operation::Renew, call).await?;
        let answers = answers(&rows).map_err(|error| error.during(Operation::Renew))?;
        if answers.is_empty() || answers.len() > leases.len() {
            return Err(no_row().during(Operation::Renew));
        }
        let renewed = answers.into_iter().zip(leases).zip(&rows).map(|((answer, lease), row)| {
            let renewed = answer.outcome.into_renewed(&answer.record, lease);
            if matches!(renewed, Renewed::Held(_)) {
                let until = sent.plus(lease.ttl);
                self.holdings.keep(lease.lease, &lease.name, row.get(1), until);
            }
            renewed
        });
        Ok(renewed.collect())
    }

    fn keep(&self, request: &Request, session: String) {
        let until = BootClock.now().plus(request.ttl);
        self.holdings.keep(request.lease, &request.name, session, until);
    }

    /// What a waiter was granted meanwhile by the release of another of this process.
    fn handed(&self, request: &Request) -> Option<Attempt> {
        let wakeups = &self.holdings.wakeups;
        let fence = wakeups.granted(request.lease)?;
        wakeups.close(request.lease);
        let session = self.holdings.handed(request.lease)?;
        self.keep(request, session);
        Some(Attempt::Granted(Grant { fence, mode: request.mode, took_over: false }))
    }

    /// Asks those who have the lock without right to let go of it, until they do. Tells of whom
    /// this user may not disconnect.
    async fn urge(
        &self,
        name: &LockName,
        patience: Duration,
        times: usize,
    ) -> Result<Option<String>> {
        let mut spared = None;
        for _ in 0..times {
            let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
            let number = key(&self.rows.namespace, name.as_str());
            let call = Call::new(URGE).with(number, Type::INT8).with(patience, Type::INT8);
            let rows = self.rows.ask(Operation::Evict, call).await?;
            let row = rows.first().ok_or_else(|| no_row().during(Operation::Evict))?;
            if row.get::<_, i64>(0) == 0 {
                return Ok(None);
            }
            spared = row.get(1);
        }
        Ok(spared)
    }
}

/// Which way a command went: the fence and the session, or all there is to say.
enum Either {
    Short(Fence, String),
    Long(Box<Done>),
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
        let wakeups = &self.holdings.wakeups;
        if request.queue {
            if let Some(granted) = self.handed(request) {
                return Ok(granted);
            }
            wakeups.open(request.lease);
        }
        let mut done = match self.acquire(request).await? {
            Either::Short(fence, session) => {
                self.keep(request, session);
                wakeups.close(request.lease);
                return Ok(plain::granted(fence));
            }
            Either::Long(done) => *done,
        };
        if done.leaving && !request.queue {
            // Who does not come back has to wait here, or leaves what it was granted.
            self.urge(&request.name, PATIENCE / 10, URGES).await?;
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
        let Done { answer, session, .. } = done;
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        match &mut attempt {
            Ok(Attempt::Granted(_)) => self.keep(request, session),
            Ok(Attempt::Held(contention)) => contention.ahead = answer.waiting,
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
        let mut renewed = Vec::with_capacity(leases.len());
        while renewed.len() < leases.len() {
            renewed.extend(self.renew_some(&leases[renewed.len()..]).await?);
        }
        Ok(renewed)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let mailboxes = &self.holdings.wakeups.mailboxes;
        mailboxes.open(conversion.lease);
        let command = Command::convert(conversion);
        let done = self.run(Operation::Convert, &conversion.name, &command).await?;
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
        self.holdings.wakeups.close(lease);
        let call = Call::new(LEAVE).text(&self.rows.namespace).text(name.as_str());
        let call = call.text(lease.to_string()).with(NO_CHANNEL, Type::TEXT);
        let call = call.with(key(&self.rows.namespace, name.as_str()), Type::INT8);
        let released = match self.send(Operation::Release, name, call).await? {
            Either::Short(..) => Released::Freed,
            Either::Long(done) => done.answer.outcome.into_released(),
        };
        self.holdings.leave(lease);
        Ok(released)
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
        if matches!(evicted, Evicted::Broken(_))
            && let Some(who) = self.urge(&eviction.name, PATIENCE, URGES * 5).await?
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
        self.holdings.pulse.ended().await;
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
