//! [`PostgresStore`].

use std::sync::Arc;

use async_trait::async_trait;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::evictions::Evictions;
use sprag_core::record::wire::{self, Answer};
use sprag_core::record::{Command, Outcome};
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Grant, Listing, Page, Released, Renewal,
    Renewed, Request,
};
use sprag_core::wakeups::Wakeups;
use sprag_core::{
    Capability, Error, ErrorKind, Fence, LeaseId, Level, LockName, LockView, Operation, Result,
    SessionId, Store,
};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::parts::{self, How, Parts};
use super::passing::{self, Passing};
use super::plain::{self, Plain};
use super::start::Start;
use super::statements::{self, APPLY, LEAVE, LIST, LOOK, RENEW, RENEW_EACH, TAKE};
use super::trail;
use super::zeros::without_zeros;
use crate::advisory::Vital;
use crate::config::PostgresConfig;
use crate::diagnose::{self, Settings};
use crate::error::{STORE, error, strange_answer};
use crate::link::{Call, Lane, Link, Place, Server};

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;
/// What a lease has in the place of the key of an advisory lock.
const NO_KEY: Option<i64> = None;
const NO_KEYS: Option<Vec<i64>> = None;

/// Locks in rows of a PostgreSQL database.
///
/// Each is a session of its own, with one connection, on which it is also woken. Through a connection
/// pool nobody is woken, and waiters ask.
///
/// # Guarantees
///
/// L3 on one server, or with synchronous replication: grants and renewals are on the disk before
/// they are answered, and fences never go back. After a failover to a standby that missed the last
/// writes two may hold a lock; fences still grow, by the server's clock.
#[derive(Debug)]
pub struct PostgresStore {
    pub(super) capability: Capability,
    pub(crate) link: Link,
    pub(crate) namespace: String,
    pub(super) session: SessionId,
    /// Where this process is woken; none through a pool.
    pub(super) channel: Option<String>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(crate) passing: Passing,
    pub(super) server: Server,
}

impl PostgresStore {
    /// What every PostgreSQL can do.
    pub const fn ability() -> Capability {
        Capability::full(STORE, Level::Fenced)
    }

    /// Connects, makes the schema if it is not there, and blocks until it is done.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, refuses, or cannot keep the promise; with the fix.
    pub fn open(config: PostgresConfig) -> Result<Self> {
        Self::open_with(config, None)
    }

    pub(crate) fn open_with(config: PostgresConfig, vital: Option<Vital>) -> Result<Self> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        // It is told once, and if nobody listens any more nobody wants to know.
        let start = Start::new(config, vital, move |opened| drop(tell.send(opened)))?;
        start.finish(told.recv().map_err(|_| ended())?)
    }

    /// Connects, and makes the schema if it is not there.
    ///
    /// # Errors
    ///
    /// As [`PostgresStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connection is closed.
    pub async fn connect(config: PostgresConfig) -> Result<Self> {
        Self::connect_with(config, None).await
    }

    pub(crate) async fn connect_with(config: PostgresConfig, vital: Option<Vital>) -> Result<Self> {
        let (tell, told) = oneshot::channel();
        let start = Start::new(config, vital, move |opened| drop(tell.send(opened)))?;
        start.finish(told.await.map_err(|_| ended())?)
    }

    /// Runs a command on the server.
    async fn run(
        &self,
        operation: Operation,
        name: &LockName,
        command: &Command,
        place: Option<Place>,
    ) -> Result<Answer> {
        let sent = BootClock.now();
        let call = Call::new(APPLY)
            .at(place)
            .durable()
            .text(&self.namespace)
            .text(name.as_str())
            .text(written(command, self.capability.max_waiters))
            .with(self.channel.clone(), Type::TEXT);
        let rows = self.ask(operation, call).await.map_err(|error| error.on(name))?;
        let answer = self.text(&rows).and_then(|text| Answer::read(text).map_err(strange_answer));
        let answer = answer.map_err(|error| error.during(operation).on(name))?;
        self.link.learn(answer.now_us / 1000, sent);
        Ok(answer)
    }

    /// Sends what may go the short way.
    async fn run_plain(&self, operation: Operation, name: &LockName, call: Call) -> Result<Plain> {
        let sent = BootClock.now();
        let rows = self.ask(operation, call).await.map_err(|error| error.on(name))?;
        let plain = self.text(&rows).and_then(Plain::read);
        let plain = plain.map_err(|error| error.during(operation).on(name))?;
        self.link.learn(plain.now_us() / 1000, sent);
        Ok(plain)
    }

    /// Sends a release.
    async fn leave(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
    ) -> Result<Outcome> {
        let call = Call::new(LEAVE).text(&self.namespace).text(name.as_str());
        let call = call.text(lease.to_string()).with(self.channel.clone(), Type::TEXT);
        let call = call.with(NO_KEY, Type::INT8);
        Ok(match self.run_plain(operation, name, call).await? {
            Plain::Short { .. } => Outcome::Done,
            Plain::Long(answer) => answer.outcome,
        })
    }

    /// Before a lease changes: what it was let in by is written, and it does not let in its heir by
    /// itself any more.
    async fn settle(&self, operation: Operation, name: &LockName, lease: LeaseId) -> Result<()> {
        passing::settle(&self.wakeups, lease, |lease| self.leave(operation, name, lease)).await?;
        self.wakeups.leave(lease);
        Ok(())
    }

    /// Renews in one statement, as many of the first as there is time for.
    async fn renew_some(&self, leases: &[Renewal], how: How) -> Result<Vec<Result<Renewed>>> {
        let names: Vec<String> = leases.iter().map(|renewal| renewal.name.to_string()).collect();
        let commands = leases.iter().map(|renewal| Command::renew(renewal, self.session));
        let commands: Vec<_> =
            commands.map(|command| written(&command, self.capability.max_waiters)).collect();
        let mut call = Call::new(if how.each { RENEW_EACH } else { RENEW })
            .renewing()
            .durable()
            .text(&self.namespace)
            .with(names, Type::TEXT_ARRAY)
            .text(format!("[{}]", commands.join(",")))
            .with(self.channel.clone(), Type::TEXT);
        if how.each {
            call = call.with(NO_KEYS, Type::INT8_ARRAY);
        }
        let call = call.with(how.patience_us, Type::INT8);
        let rows = self.ask(Operation::Renew, call).await?;
        let answers = rows.iter().zip(leases).map(|(row, lease)| {
            let text = row.try_get(0).map_err(|e| self.misfit(&e.into()))?;
            Ok(parts::read(text, lease))
        });
        answers.collect()
    }

    pub(crate) async fn ask(&self, operation: Operation, call: Call) -> Result<Vec<Row>> {
        self.link.ask(call).await.map_err(|error| error.during(operation).at(STORE))
    }

    /// Looks at the locks that a statement finds.
    async fn look(&self, operation: Operation, call: Call) -> Result<Vec<LockView>> {
        let rows = self.ask(operation, call).await?;
        let view = |row: &Row| {
            let name = LockName::new(row.try_get::<_, &str>(0)?)?;
            statements::view(&name, row.try_get(1)?, self.capability.max_waiters)
        };
        let views = rows.iter().map(|row| view(row).map_err(|e| self.misfit(&e)));
        views.collect::<Result<_>>().map_err(|error| error.during(operation))
    }

    /// What a waiter was granted meanwhile. Whoever handed the lock over has told its fence: when it was
    /// written for good, or when it was promised so.
    fn handed(&self, request: &Request) -> Option<Attempt> {
        let fence = self.wakeups.enter(request.lease)?;
        // Who is handed the lock pushed nobody aside.
        Some(Attempt::Granted(Grant { fence, mode: request.mode, took_over: false }))
    }

    /// Who does not wait needs no wake-up; who waits does.
    /// `heard` is where it would have been woken since it asked.
    fn heed(&self, lease: LeaseId, outcome: &Outcome, heard: Option<&Arc<Lane>>) {
        if !matches!(outcome, Outcome::Queued { .. }) {
            self.wakeups.close(lease);
        } else if self.channel.is_some() {
            self.link.listen(lease, heard);
        }
    }
}

/// The command as the functions read it.
pub(crate) fn written(command: &Command, max_waiters: usize) -> String {
    without_zeros(wire::write(command, max_waiters))
}

fn ended() -> Error {
    error(ErrorKind::Unavailable, "the thread that connects has ended")
}

#[async_trait]
impl Store for PostgresStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        if request.queue {
            if let Some(granted) = self.handed(request) {
                return Ok(granted);
            }
            self.wakeups.open(request.lease);
        }
        let place = self.link.place().await;
        if request.queue
            && let Some(granted) = self.handed(request)
        {
            return Ok(granted);
        }
        let heard = self.link.listening();
        let mut command = Command::acquire(request, self.session);
        // One that lay in a buffer until its caller gave up must not take the lock.
        let not_after_ms = self.link.not_after_ms();
        if let Command::Acquire(acquire) = &mut command {
            acquire.not_after_ms = Some(not_after_ms);
        }
        let answer = if plain::may_be(request) {
            let call = Call::new(TAKE).at(place).durable();
            let call = call.text(&self.namespace).text(request.name.as_str());
            let call = call.text(written(&command, self.capability.max_waiters));
            let call = plain::wish(call, request, not_after_ms);
            let call = call.with(self.channel.clone(), Type::TEXT).with(NO_KEY, Type::INT8);
            match self.run_plain(Operation::Acquire, &request.name, call).await? {
                // Nobody is let in without a fence.
                Plain::Short { fence: Fence::ZERO, .. } => {
                    return Err(self.misfit(&"it is that to a release".into()));
                }
                Plain::Short { fence, .. } => {
                    self.wakeups.close(request.lease);
                    return Ok(plain::granted(fence));
                }
                Plain::Long(answer) => *answer,
            }
        } else {
            self.run(Operation::Acquire, &request.name, &command, place).await?
        };
        self.heed(request.lease, &answer.outcome, heard.as_ref());
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        if let Ok(Attempt::Held(contention)) = &mut attempt {
            contention.ahead = answer.waiting;
        }
        attempt.map_err(|error| error.at(STORE))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let release =
            |name: LockName, lease| async move { self.leave(Operation::Renew, &name, lease).await };
        let unsettled = passing::settle_all(&self.wakeups, leases, release).await;
        let mut parts = Parts::new(leases);
        while let Some((rest, how)) = parts.next() {
            parts.take(self.renew_some(rest, how).await)?;
        }
        let renewed = parts.finish().map_err(|error| error.during(Operation::Renew))?;
        Ok(passing::judged(&self.wakeups, leases, renewed, &unsettled))
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.wakeups.mailboxes.open(conversion.lease);
        self.settle(Operation::Convert, &conversion.name, conversion.lease).await?;
        let heard = self.link.listening();
        let command = Command::convert(conversion);
        let answer = self.run(Operation::Convert, &conversion.name, &command, None).await?;
        self.heed(conversion.lease, &answer.outcome, heard.as_ref());
        let context = answer.context(self.capability.max_waiters);
        answer.outcome.into_converted(conversion, &context).map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let release = |lease| self.leave(Operation::Release, name, lease);
        self.passing.give_back(&self.wakeups, &self.link, lease, release).await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.settle(Operation::Release, name, lease).await?;
        self.run(Operation::Release, name, &Command::Withdraw { lease }, None).await?;
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let call = Call::new(LOOK).text(&self.namespace).text(name.as_str());
        let found = self.look(Operation::Inspect, call).await?.into_iter().next();
        let unused = || sprag_core::record::Record::default().view(name, &wire::clock_only(0, 0));
        Ok(found.unwrap_or_else(unused))
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let mut after = listing.after.as_ref().map_or_else(String::new, LockName::to_string);
        let mut locks: Vec<LockView> = Vec::new();
        loop {
            let count = i64::try_from(PAGE).unwrap_or(i64::MAX);
            let call = Call::new(LIST).text(&self.namespace).text(after);
            let call = call.text(&listing.prefix).with(count, Type::INT8);
            let found = self.look(Operation::List, call).await?;
            let full = found.len() == PAGE;
            after = found.last().map_or_else(String::new, |view| view.name.to_string());
            // What has ended is not there, although nobody has cleared it up yet.
            let wanted =
                |view: &LockView| view.is_contended() || (view.is_locked() && !listing.contended);
            locks.extend(found.into_iter().filter(wanted));
            if locks.len() > limit || !full {
                break;
            }
        }
        let more = locks.len() > limit;
        locks.truncate(limit);
        let next = if more { locks.last().map(|view| view.name.clone()) } else { None };
        Ok(Page { locks, next })
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        if let Some(repaired) = self.repair(eviction).await? {
            return Ok(repaired);
        }
        let command = Command::evict(eviction);
        let answer = self.run(Operation::Evict, &eviction.name, &command, None).await?;
        Ok(answer.outcome.into_evicted())
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.wakeups.mailboxes.wait(lease).await;
    }

    fn is_severed(&self, lease: LeaseId) -> bool {
        self.wakeups.is_severed(lease)
    }

    async fn severed(&self) {
        self.wakeups.severed().await;
    }

    fn evictions(&self) -> Option<Evictions> {
        self.channel.as_ref()?;
        let feed = &self.wakeups.evictions;
        let evictions = feed.subscribe_before_connecting();
        Some(if self.link.hear_evictions() { feed.subscribe() } else { evictions })
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        trail::read(self, query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        trail::note(self, entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let rows = self.ask(Operation::Inspect, Call::new(diagnose::SETTINGS)).await?;
        let row = self.only(&rows);
        let settings = row.and_then(|row| Settings::read(row).map_err(|e| self.misfit(&e)));
        let settings = settings.map_err(|error| error.during(Operation::Inspect))?;
        Ok(settings.findings(&self.server))
    }
}
