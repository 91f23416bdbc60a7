//! [`RedisStore`].

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::entropy::OsEntropy;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::wire::{self, Answer};
use sprag_core::record::{Command, Outcome};
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, LeaseId, Level, LockName, LockView, Operation, Result, SessionId,
    Store,
};
use tokio::sync::oneshot;

use crate::config::RedisConfig;
use crate::error::{STORE, error, strange_answer};
use crate::hello::Info;
use crate::keys::Keys;
use crate::link::{Dialer, Ear, Heard, Link};
use crate::resp::FromValue;
use crate::script::{Call, Script};
use crate::wire::Looked;
use crate::{diagnose, trail};

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;

/// Locks on one Redis server.
///
/// Each is a session of its own, with at most two connections: one for commands, one on which it is
/// woken once it had to wait.
///
/// # Guarantees
///
/// L2 with an append-only file and a clock that does not jump, else L1. Fences keep growing over
/// restarts and lost data, by the server's clock.
#[derive(Debug)]
pub struct RedisStore {
    capability: Capability,
    link: Link,
    pub(crate) keys: Keys,
    session: SessionId,
    channel: String,
    mailboxes: Arc<Mailboxes>,
    dialer: Dialer,
    ear: Ear,
}

impl RedisStore {
    /// What every Redis can do. With an append-only file it promises more.
    pub const fn ability() -> Capability {
        Capability::full(STORE, Level::Efficiency)
    }

    /// Connects, and blocks until it is done.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, refuses, or cannot keep the promise; with the fix.
    pub fn open(config: RedisConfig) -> Result<Self> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        // It is told once, and if nobody listens any more nobody wants to know.
        let start = Start::new(config, move |opened| drop(tell.send(opened)))?;
        start.finish(told.recv().map_err(|_| ended())?)
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`RedisStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connection is closed.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        let (tell, told) = oneshot::channel();
        let start = Start::new(config, move |opened| drop(tell.send(opened)))?;
        start.finish(told.await.map_err(|_| ended())?)
    }

    /// Runs a command on the server.
    async fn run(
        &self,
        operation: Operation,
        name: &LockName,
        command: &Command,
    ) -> Result<Answer> {
        let sent = BootClock.now();
        let command = wire::write(command, self.capability.max_waiters);
        let answer = self.script(operation, Script::Lock, name, command).await?;
        let read = Answer::read(&answer);
        let answer = read.map_err(|e| strange_answer(e).during(operation).on(name))?;
        self.link.learn(answer.now_us / 1000, sent);
        Ok(answer)
    }

    async fn script(
        &self,
        operation: Operation,
        script: Script,
        name: &LockName,
        command: String,
    ) -> Result<String> {
        let keys = self.keys.of(name)?;
        let arguments = vec![command, name.as_str().to_owned(), self.channel.clone()];
        let answer = self.ask::<String>(operation, Call::Script { script, keys, arguments }).await;
        answer.map_err(|error| error.on(name))
    }

    pub(crate) async fn ask<T: FromValue>(&self, operation: Operation, call: Call) -> Result<T> {
        self.link.ask(call).await.map_err(|error| error.during(operation).at(STORE))
    }

    async fn look(&self, operation: Operation, name: &LockName) -> Result<LockView> {
        let looked = self.script(operation, Script::Look, name, String::new()).await?;
        let looked: Looked = serde_json::from_str(&looked)
            .map_err(|e| strange_answer(e).during(operation).on(name))?;
        let context = wire::clock_only(looked.now_us, self.capability.max_waiters);
        Ok(looked.into_record().view(name, &context))
    }

    /// From now on wake-ups are listened for.
    fn listen(&self) {
        let mailboxes = Arc::clone(&self.mailboxes);
        self.ear.listen(&self.dialer, &self.channel, move |heard| match heard {
            Heard::Gap => mailboxes.notify_all(),
            // The lease, a colon, the fence; the latter is for people who watch.
            Heard::Message(text) => match text.split(':').next().and_then(|it| it.parse().ok()) {
                Some(lease) => mailboxes.notify(lease),
                None => mailboxes.notify_all(),
            },
        });
    }

    /// Who does not wait needs no wake-up; who waits does.
    fn heed(&self, lease: LeaseId, outcome: &Outcome) {
        if matches!(outcome, Outcome::Queued { .. }) {
            self.listen();
        } else {
            self.mailboxes.close(lease);
        }
    }

    /// Up to `count` names in use, in order, after `after` or from `prefix` on.
    async fn names(&self, listing: &Listing, after: Option<&LockName>) -> Result<Vec<LockName>> {
        let from = match after {
            Some(after) if after.as_str() >= listing.prefix.as_str() => format!("({after}"),
            _ => format!("[{}", listing.prefix),
        };
        let (names, count) = (self.keys.names(), PAGE.to_string());
        let words = ["ZRANGEBYLEX", &names, &from, "+", "LIMIT", "0", &count];
        let found: Vec<String> = self.ask(Operation::List, Call::plain(&words)).await?;
        let within = found.into_iter().take_while(|name| name.starts_with(&listing.prefix));
        within.map(LockName::new).collect()
    }
}

fn ended() -> sprag_core::Error {
    error(ErrorKind::Unavailable, "the thread that connects has ended")
}

/// A store whose connection is being made.
struct Start {
    link: Link,
    dialer: Dialer,
    ear: Ear,
    keys: Keys,
}

impl Start {
    fn new(
        config: RedisConfig,
        opened: impl FnOnce(Result<Info>) + Send + 'static,
    ) -> Result<Self> {
        config.check()?;
        let keys = Keys::new(config.prefix.clone());
        let dialer = Dialer::new(&config);
        let ear = Ear::new().map_err(|e| ended().caused_by(e))?;
        let link = Link::start(config, opened)?;
        Ok(Self { link, dialer, ear, keys })
    }

    fn finish(self, opened: Result<Info>) -> Result<RedisStore> {
        let mut capability = RedisStore::ability();
        if opened?.has_log() {
            capability.level = Level::LeaseExclusive;
        }
        let Self { link, dialer, ear, keys } = self;
        let session = SessionId::random(&OsEntropy);
        let (channel, mailboxes) = (keys.channel(session), Arc::default());
        Ok(RedisStore { capability, link, keys, session, channel, mailboxes, dialer, ear })
    }
}

#[async_trait]
impl Store for RedisStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        self.link.server.uses(request.ttl);
        self.link.server.may_grant().map_err(|e| Error::from(e).during(Operation::Acquire))?;
        if request.queue {
            self.mailboxes.open(request.lease);
        }
        let mut command = Command::acquire(request, self.session);
        if let Command::Acquire(acquire) = &mut command {
            // One that lay in a buffer until its caller gave up must not take the lock.
            acquire.not_after_ms = Some(self.link.not_after_ms());
        }
        let answer = self.run(Operation::Acquire, &request.name, &command).await?;
        self.heed(request.lease, &answer.outcome);
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        if let Ok(Attempt::Held(contention)) = &mut attempt {
            contention.ahead = answer.waiting;
        }
        attempt.map_err(|error| error.at(STORE))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let renew = async |renewal: &Renewal| {
            let command = Command::renew(renewal, self.session);
            let answer = self.run(Operation::Renew, &renewal.name, &command).await?;
            Ok(answer.outcome.into_renewed(&answer.record, renewal))
        };
        try_join_all(leases.iter().map(renew)).await
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.mailboxes.open(conversion.lease);
        let command = Command::convert(conversion);
        let answer = self.run(Operation::Convert, &conversion.name, &command).await?;
        self.heed(conversion.lease, &answer.outcome);
        let context = answer.context(self.capability.max_waiters);
        answer.outcome.into_converted(conversion, &context).map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.mailboxes.close(lease);
        let answer = self.run(Operation::Release, name, &Command::Release { lease }).await?;
        Ok(answer.outcome.into_released())
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.run(Operation::Release, name, &Command::Withdraw { lease }).await?;
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.look(Operation::Inspect, name).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let mut after = listing.after.clone();
        let mut locks: Vec<LockView> = Vec::new();
        loop {
            let names = self.names(listing, after.as_ref()).await?;
            let Some(last) = names.last().cloned() else { break };
            let looks = names.iter().map(|name| self.look(Operation::List, name));
            for view in try_join_all(looks).await? {
                if !view.is_locked() && !view.is_contended() {
                    // It ended without anybody who could have taken it off the list.
                    self.run(Operation::List, &view.name, &Command::Reap).await?;
                } else if view.is_contended() || !listing.contended {
                    locks.push(view);
                }
            }
            if locks.len() > limit || names.len() < PAGE {
                break;
            }
            after = Some(last);
        }
        let more = locks.len() > limit;
        locks.truncate(limit);
        let next = if more { locks.last().map(|view| view.name.clone()) } else { None };
        Ok(Page { locks, next })
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let command = Command::evict(eviction);
        let answer = self.run(Operation::Evict, &eviction.name, &command).await?;
        Ok(answer.outcome.into_evicted())
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        self.mailboxes.wait(lease).await;
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        trail::read(self, query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        trail::note(self, entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let text: String = self.ask(Operation::Inspect, Call::plain(&["INFO"])).await?;
        Ok(diagnose::findings(&Info::read(&text), &self.link.server))
    }
}
