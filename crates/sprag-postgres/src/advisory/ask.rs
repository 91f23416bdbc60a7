//! What an [`AdvisoryStore`] asks the server, and what it answers.

use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::record::wire::Answer;
use sprag_core::record::{Command, Outcome};
use sprag_core::store::{Bind, Renewal, Renewed, Request};
use sprag_core::{Fence, LeaseId, LockName, Operation, Result, SessionId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::bare::{Line, Pause};
use super::key::key;
use super::store::AdvisoryStore;
use crate::error::{Misfit, strange_answer};
use crate::lease::parts::{self, How};
use crate::lease::plain::{self, Plain};
use crate::lease::{RENEW_EACH, passing, written};
use crate::link::{Call, Place};

const APPLY: &str = "SELECT sprag.advisory_v1($1, $2, $3::text::jsonb, $4)::text";
const RENEW: &str =
    "SELECT answer::text, session FROM sprag.renew_advisory_v1($1, $2, $3::text::jsonb, $4, $5)";
const URGE: &str = "SELECT left_over, spared FROM sprag.urge_v1($1, $2)";
/// An exclusive lock, bare if that may be.
const TAKE: &str = "SELECT sprag.take_bare_v1($1, $2, $3, $4, $5, $6, $7)";
/// The same for a lock whose record was seen empty.
const TAKE_AGAIN: &str = "SELECT sprag.take_again_v1($1, $2, $3, $4, $5, $6)";
/// A release.
const LEAVE: &str = "SELECT sprag.leave_bare_v1($1, $2, $3, $4, $5)";
/// The same of a lock that was bare when it was let in.
const LEAVE_AGAIN: &str = "SELECT sprag.leave_again_v1($1, $2, $3, $4, $5, $6)";
/// What is worth preparing.
pub(crate) const PREPARED: &[&str] = &[APPLY, TAKE, TAKE_AGAIN, LEAVE, LEAVE_AGAIN, RENEW];

/// The server knows where a session is woken that has locks.
const NO_CHANNEL: Option<&str> = None;

/// An answer, who did it, and who is in its way.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) session: String,
    pub(super) outsider: Option<String>,
    pub(super) leaving: bool,
    /// Whether who has it was asked to write that down.
    pub(super) bare: bool,
}

/// What the answer says about the session lock.
#[derive(serde::Deserialize)]
struct Grip {
    session: String,
    outsider: Option<String>,
    leaving: bool,
    #[serde(default)]
    bare: bool,
}

impl Done {
    fn read(text: &str) -> Result<Self> {
        let answer = Answer::read(text).map_err(strange_answer)?;
        let Grip { session, outsider, leaving, bare } =
            serde_json::from_str(text).map_err(strange_answer)?;
        Ok(Self { answer, session, outsider, leaving, bare })
    }
}

/// Which way a request for a lock went.
pub(super) enum Either {
    Short(Entry),
    Long(Box<Done>),
}

/// Who was let in the short way: its fence, its session, and how that is noted, if it is known.
pub(super) struct Entry {
    pub(super) fence: Fence,
    pub(super) session: String,
    pub(super) line: Option<Line>,
}

/// The session is put in by the server, which knows it.
pub(super) fn any_session() -> SessionId {
    SessionId::from_u128(0)
}

/// The server's time, and which way it went.
fn read(text: &str) -> Result<(u64, Either)> {
    Ok(match Plain::read(text)? {
        Plain::Short { now_us, fence, session } => {
            (now_us, Either::Short(Entry { fence, session, line: None }))
        }
        Plain::Long(_) => {
            let done = Done::read(text)?;
            (done.answer.now_us, Either::Long(Box::new(done)))
        }
    })
}

impl AdvisoryStore {
    /// Runs a command on the server.
    pub(super) async fn run(
        &self,
        operation: Operation,
        name: &LockName,
        command: &Command,
    ) -> Result<Done> {
        let place = match operation {
            Operation::Acquire => self.rows.link.place().await,
            _ => None,
        };
        self.run_at(place, operation, name, command).await
    }

    /// The same for a request that may have its place already.
    async fn run_at(
        &self,
        place: Option<Place>,
        operation: Operation,
        name: &LockName,
        command: &Command,
    ) -> Result<Done> {
        let call = Call::new(APPLY)
            .at(place)
            .text(&self.rows.namespace)
            .text(name.as_str())
            .text(written(command, self.capability.max_waiters))
            .key(self.key(name));
        let read = |text: &str| {
            let done = Done::read(text)?;
            Ok((done.answer.now_us, done))
        };
        self.send(operation, name, call, read).await
    }

    /// Sends a command whose answer is one text, in which is also the server's time.
    async fn send<T>(
        &self,
        operation: Operation,
        name: &LockName,
        call: Call,
        read: impl FnOnce(&str) -> Result<(u64, T)>,
    ) -> Result<T> {
        let sent = BootClock.now();
        let rows = self.rows.ask(operation, call).await.map_err(|error| error.on(name))?;
        let answer = self.rows.text(&rows).and_then(read);
        let (now_us, answer) = answer.map_err(|error| error.during(operation).on(name))?;
        self.rows.link.learn(now_us / 1000, sent);
        Ok(answer)
    }

    fn key(&self, name: &LockName) -> i64 {
        key(&self.rows.namespace, name.as_str())
    }

    /// Asks for the lock, the short way if that may be.
    pub(super) async fn acquire(&self, request: &Request, place: Option<Place>) -> Result<Either> {
        let mut command = Command::acquire(request, any_session());
        // One that lay in a buffer until its caller gave up must not take the lock.
        let not_after_ms = self.rows.link.not_after_ms();
        if let Command::Acquire(acquire) = &mut command {
            acquire.not_after_ms = Some(not_after_ms);
        }
        let name = &request.name;
        if !plain::may_be(request) {
            let done = self.run_at(place, Operation::Acquire, name, &command).await?;
            return Ok(Either::Long(Box::new(done)));
        }
        let command = written(&command, self.capability.max_waiters);
        let sights = &self.holdings.sights;
        if let Some(seen) = sights.recall(name, request.lease, request.ttl) {
            let call = Call::new(TAKE_AGAIN).at(place);
            return self.take_again(call, request, &command, not_after_ms, seen).await;
        }
        let call = Call::new(TAKE).at(place).text(&self.rows.namespace);
        let call = call.text(name.as_str()).text(command);
        let call = plain::wish(call, request, not_after_ms).key(self.key(name));
        self.send(Operation::Acquire, name, call, |text| self.read_taken(name, text)).await
    }

    /// Asks for a lock whose record was seen empty, in which session and at which number.
    async fn take_again(
        &self,
        call: Call,
        request: &Request,
        command: &str,
        not_after_ms: u64,
        (session, number): (String, i64),
    ) -> Result<Either> {
        let Request { name, lease, .. } = request;
        let ttl = i64::try_from(request.ttl.as_millis()).unwrap_or(i64::MAX);
        let call = call
            .text(&session)
            .with(number, Type::INT8)
            .text(lease.to_string())
            .text(Line::rest(ttl, &self.rows.namespace, name, command))
            .with(i64::try_from(not_after_ms.saturating_mul(1000)).unwrap_or(i64::MAX), Type::INT8)
            .key(self.key(name));
        let read = |text: &str| {
            let Some((line, fence)) = Line::read(text, *lease) else {
                self.holdings.sights.forget(number);
                return self.read_taken(name, text);
            };
            let since_us = line.since_us();
            Ok((since_us, Either::Short(Entry { fence, session, line: Some(line) })))
        };
        self.send(Operation::Acquire, name, call, read).await
    }

    /// Who was let in bare is also told what was seen of the record.
    fn read_taken(&self, name: &LockName, text: &str) -> Result<(u64, Either)> {
        let (now_us, way) = read(text)?;
        if let Either::Short(entry) = &way {
            let mut told = text.splitn(5, ' ').skip(3);
            if let (Some(Ok(number)), Some(gone)) = (told.next().map(str::parse), told.next()) {
                self.holdings.sights.learn(&entry.session, number, name, gone);
            }
        }
        Ok((now_us, way))
    }

    /// Gives the lock back. A bare visit is told to the trail later, unless it is alone.
    pub(super) async fn leave(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
    ) -> Result<Outcome> {
        let visits = &self.holdings.visits;
        let tell = visits.tell_at_once();
        let line = self.holdings.line(lease).filter(|_| !tell);
        let call = Call::new(if line.is_some() { LEAVE_AGAIN } else { LEAVE })
            .text(&self.rows.namespace)
            .text(name.as_str())
            .text(lease.to_string())
            .key(self.key(name));
        let call = match &line {
            Some(line) => call.text(&line.text).with(line.until_us(), Type::INT8),
            None => call.with(tell, Type::BOOL),
        };
        let read = |text: &str| {
            // Where it was noted as it is known the answer is the time alone.
            if let (Some(line), Ok(now_us)) = (&line, text.parse()) {
                visits.add(now_us, line.visit());
                return Ok((now_us, Outcome::Done));
            }
            let (now_us, way) = read(text)?;
            if let Either::Long(done) = way {
                return Ok((now_us, done.answer.outcome));
            }
            if let Some(line) = text.splitn(4, ' ').nth(3) {
                visits.add(now_us, line);
            }
            Ok((now_us, Outcome::Done))
        };
        self.send(operation, name, call, read).await
    }

    /// Before a lease changes: what it was let in by is written, and it does not let in its heir by
    /// itself any more.
    pub(super) async fn settle(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
    ) -> Result<()> {
        let wakeups = &self.holdings.wakeups;
        passing::settle(wakeups, lease, |lease| self.leave(operation, name, lease)).await?;
        wakeups.leave(lease);
        Ok(())
    }

    /// Renews in one statement, as many of the first as there is time for.
    pub(super) async fn renew_some(
        &self,
        leases: &[Renewal],
        how: How,
    ) -> Result<Vec<Result<Renewed>>> {
        let names: Vec<String> = leases.iter().map(|renewal| renewal.name.to_string()).collect();
        let keys: Vec<i64> = names.iter().map(|name| key(&self.rows.namespace, name)).collect();
        let commands = leases.iter().map(|renewal| {
            let renewal = Renewal { bind: Bind::Keep, ..renewal.clone() };
            written(&Command::renew(&renewal, any_session()), self.capability.max_waiters)
        });
        let commands: Vec<_> = commands.collect();
        let mut call = Call::new(if how.each { RENEW_EACH } else { RENEW })
            .renewing()
            .text(&self.rows.namespace)
            .with(names, Type::TEXT_ARRAY)
            .text(format!("[{}]", commands.join(",")));
        if how.each {
            call = call.with(NO_CHANNEL, Type::TEXT);
        }
        let call = call.with(keys, Type::INT8_ARRAY).with(how.patience_us, Type::INT8);
        let sent = BootClock.now();
        let rows = self.rows.ask(Operation::Renew, call).await?;
        let renewed = rows.iter().zip(leases).map(|(row, lease)| {
            let text = row.try_get(0).map_err(|e| self.rows.misfit(&e.into()))?;
            let renewed = parts::read(text, lease);
            if matches!(renewed, Ok(Renewed::Held(_))) {
                let until = sent.plus(lease.ttl);
                let session = row.try_get(1).map_err(|e| self.rows.misfit(&e.into()))?;
                self.holdings.keep(lease.lease, &lease.name, session, until);
            }
            Ok(renewed)
        });
        renewed.collect()
    }

    /// Asks those who have the lock without right to let go of it, until they do or the time is over. Who
    /// does not for as long as `patience` is disconnected. Tells of whom this user may not disconnect.
    pub(super) async fn urge(
        &self,
        name: &LockName,
        patience: Duration,
        until: Moment,
    ) -> Result<Option<String>> {
        let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
        let mut pause = Pause::until(&self.rows.link, until);
        loop {
            let call = Call::new(URGE).with(self.key(name), Type::INT8).with(patience, Type::INT8);
            let rows = self.rows.ask(Operation::Evict, call).await?;
            let read = |row: &Row| -> Result<(i64, Option<String>), Misfit> {
                Ok((row.try_get(0)?, row.try_get(1)?))
            };
            let row =
                self.rows.only(&rows).and_then(|it| read(it).map_err(|e| self.rows.misfit(&e)));
            let (left_over, spared) = row.map_err(|error| error.during(Operation::Evict))?;
            if left_over == 0 || spared.is_some() || !pause.has_waited().await {
                return Ok(spared);
            }
        }
    }
}
