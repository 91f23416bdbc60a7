//! [`RedisStore`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::iter;
use sprag_core::audit::{AuditEntry, AuditQuery};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::entropy::OsEntropy;
use sprag_core::evictions::Evictions;
use sprag_core::record::wire::{Answer, clock_only};
use sprag_core::record::{Command, Outcome, Record};
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Evicted, Eviction, Grant, LEFT_OUT, Listing, Page,
    Released, Renewal, Renewed, Request, renewal_limit,
};
use sprag_core::wakeups::{Wakeups, step_aside};
use sprag_core::{
    Capability, Error, ErrorKind, LeaseId, Level, LockName, LockView, Loss, Mode, Operation,
    Result, SessionId, Store,
};
use tokio::sync::oneshot;

use crate::config::{Place, RedisConfig};
use crate::error::{STORE, error, strange_answer};
use crate::hello::Info;
use crate::keys::Keys;
use crate::link::{Dialer, Ear, Heard, Link};
use crate::longest::Longest;
use crate::resp::Value;
use crate::script::{Call, Script};
use crate::way::Way;
use crate::wire::{self, Looked};
use crate::{diagnose, names, trail};

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;

/// How many renewals are under way at a time: a server takes no more than twice as many requests.
const RENEWED_AT_ONCE: usize = 8 << 10;

/// Locks on one Redis server.
///
/// Each is a session of its own, with at most two connections: one for commands, one on which it is
/// woken once it had to wait.
///
/// # Guarantees
///
/// L2 with an append-only file that is written at once (`appendfsync always`) and a clock that does
/// not jump, else L1. Fences keep growing over restarts and lost data, by the server's clock.
#[derive(Debug)]
pub struct RedisStore {
    capability: Capability,
    pub(crate) way: Arc<Way>,
    longest: Arc<Longest>,
    pub(crate) keys: Keys,
    /// How many replicas have to confirm; all there are if it is not said.
    min_replicas: Option<u32>,
    /// How long replicas may take to confirm.
    patience: Duration,
    session: SessionId,
    channel: String,
    pub(crate) wakeups: Arc<Wakeups>,
    dialer: Dialer,
    ear: Ear,
}

impl RedisStore {
    /// What every Redis can do. With `appendfsync always` it promises more.
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
    pub(crate) async fn run(
        &self,
        operation: Operation,
        name: &LockName,
        command: Command,
    ) -> Result<Answer> {
        self.run_at(operation, name, command).await.map(|(answer, _)| answer)
    }

    /// Runs a command, and tells on which server.
    pub(crate) async fn run_at(
        &self,
        operation: Operation,
        name: &LockName,
        command: Command,
    ) -> Result<(Answer, Arc<Link>)> {
        let keys = self.keys.of(name)?;
        let granting = granting(&command);
        if let Some(ttl_ms) = ttl_of(&command) {
            // Also if there will be no answer.
            self.longest.uses(Duration::from_millis(ttl_ms));
        }
        let asked_for = AtomicU32::new(0);
        let calls = |link: &Link| {
            let mut command = command.clone();
            let min_replicas = min_replicas(self.min_replicas, link);
            asked_for.store(min_replicas, Ordering::Relaxed);
            if let Command::Acquire(acquire) = &mut command {
                // One that lay in a buffer until its caller gave up must not take the lock.
                acquire.not_after_ms = link.not_after_ms();
            }
            let mut calls = vec![self.lock_call(keys.clone(), name, &command)];
            if let (1.., Some((lease, ttl_ms))) = (min_replicas, granting) {
                // A grant that was handed over was written by somebody else. Renewing it makes it
                // ours, so that replicas that have this have that.
                if let Some(ttl_ms) = ttl_ms {
                    let renew = Command::Renew { lease, ttl_ms, rebind: None };
                    calls.push(self.lock_call(keys.clone(), name, &renew));
                }
                let (count, patience) = (min_replicas, self.patience.as_millis());
                calls.push(Call::plain(&["WAIT", &count.to_string(), &patience.to_string()]));
            }
            calls
        };
        let sent = BootClock.now();
        let asked = async {
            let (mut answers, link) = self.way.ask_all(&keys[0], calls).await?;
            let confirmed = if answers.len() > 1 { answers.pop() } else { None };
            let answer = answers.into_iter().next().unwrap_or(Value::Nil);
            if let (Command::Renew { .. }, Some(damage)) = (&command, damage(&answer)) {
                // Nobody gets such a lock, but that this lease still has it cannot be said either.
                tracing::error!(target: "sprag::redis", lock = %name, damage, "a lock is lost");
                return Ok((lost_by_damage(), None, link));
            }
            let answer = self.way.understand::<String>(answer)?;
            if let Some(message) = wire::handed_over(&answer) {
                self.wakeups.hear(message);
                step_aside().await;
            }
            Ok((wire::read(&command, &answer).map_err(strange_answer)?, confirmed, link))
        };
        let (answer, confirmed, link) =
            asked.await.map_err(|error: Error| error.during(operation).on(name).at(STORE))?;
        if answer.now_us > 0 {
            link.learn(answer.now_us / 1000, sent);
        }
        if let (Some(confirmed), Outcome::Granted(_)) = (confirmed, &answer.outcome) {
            let count = self.way.understand::<u64>(confirmed)?;
            let min_replicas = asked_for.into_inner();
            if count < min_replicas.into() {
                // Behind Sentinel it may not be the master any more, or have fewer by now.
                link.is_suspect();
                // Unknown is what it is: the caller asks again, or gives it up.
                let message = format!(
                    "{count} of the {} replicas that must have the lock have confirmed it: see \
                     INFO replication, or ask for fewer (min_replicas)",
                    min_replicas
                );
                return Err(error(ErrorKind::Unavailable, message).during(operation).on(name));
            }
        }
        Ok((answer, link))
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed> {
        let settled =
            self.settle(Operation::Renew, &renewal.name, renewal.lease, renewal.bind != Bind::Keep);
        match settled.await {
            // The renewal itself will say so.
            Err(error) if error.is_corrupt() => {}
            settled => settled?,
        }
        let command = Command::renew(renewal, self.session);
        let (answer, link) = self.run_at(Operation::Renew, &renewal.name, command).await?;
        let renewed = answer.outcome.into_renewed(&answer.record, renewal);
        match renewed {
            Renewed::Held(grant) if link.server.may_grant().is_err() => {
                self.renewed_in_quarantine(renewal, grant).await
            }
            renewed => Ok(renewed),
        }
    }

    /// The server that has the key of a lock.
    pub(crate) async fn link_to(
        &self,
        operation: Operation,
        name: &LockName,
        plain: &str,
    ) -> Result<Arc<Link>> {
        let link = self.way.link_for(plain).await;
        link.map_err(|error| error.during(operation).on(name).at(STORE))
    }

    fn lock_call(&self, keys: Vec<String>, name: &LockName, command: &Command) -> Call {
        let most = self.capability.max_waiters;
        let mut arguments = wire::write(command, name.as_str(), most, &self.channel);
        if wire::takes_away(command) {
            arguments.push(self.keys.evictions());
        }
        Call::Script { script: Script::Lock, keys, arguments }
    }

    async fn look(&self, operation: Operation, name: &LockName) -> Result<LockView> {
        let keys = self.keys.of(name)?;
        let (plain, script) = (keys[0].clone(), Script::Look);
        let call = Call::Script { script, keys, arguments: Vec::new() };
        let looked: String = self.way.ask(operation, &plain, call).await.map_err(|e| e.on(name))?;
        let looked: Looked = serde_json::from_str(&looked)
            .map_err(|e| strange_answer(e).during(operation).on(name))?;
        let context = clock_only(looked.now_us, self.capability.max_waiters);
        Ok(looked.into_record().view(name, &context))
    }

    /// From now on wake-ups are listened for. Whether they were not before.
    fn listen(&self) -> bool {
        let wakeups = Arc::clone(&self.wakeups);
        let channels = [self.channel.clone(), self.keys.evictions()];
        self.ear.listen(&self.dialer, channels, move |heard| match heard {
            Heard::Gap => wakeups.hear_gap(),
            Heard::Message(text) => wakeups.hear(&text),
        })
    }

    /// Who does not wait needs no wake-up; who waits does.
    fn heed(&self, lease: LeaseId, outcome: &Outcome) {
        if matches!(outcome, Outcome::Queued { .. }) {
            self.listen();
        } else {
            self.wakeups.close(lease);
        }
    }
}

/// How many replicas of a server have to confirm what it grants.
pub(crate) fn min_replicas(configured: Option<u32>, link: &Link) -> u32 {
    configured.unwrap_or_else(|| if link.follows() { link.server.replicas() } else { 0 })
}

/// How long a lease lasts, as a command asks for it.
const fn ttl_of(command: &Command) -> Option<u64> {
    match command {
        Command::Acquire(acquire) => Some(acquire.ttl_ms),
        Command::Renew { ttl_ms, .. } => Some(*ttl_ms),
        _ => None,
    }
}

/// The lease that a command may leave with the lock, and for how long if it is new.
fn granting(command: &Command) -> Option<(LeaseId, Option<u64>)> {
    match command {
        Command::Acquire(acquire) => Some((acquire.lease, Some(acquire.ttl_ms))),
        Command::Renew { lease, .. } | Command::Convert { lease, .. } => Some((*lease, None)),
        _ => None,
    }
}

/// What is wrong with the keys of the lock for good, if that is the answer.
fn damage(answer: &Value) -> Option<&str> {
    let Value::No(refused) = answer else { return None };
    matches!(refused.code.as_str(), "SPRAGCORRUPT" | "WRONGTYPE").then_some(&refused.said)
}

/// The answer for a lease of which nothing is left that could be understood.
fn lost_by_damage() -> Answer {
    let (outcome, record) = (Outcome::Gone(Loss::StateLost), Record::default());
    Answer { now_us: 0, outcome, waiting: 0, record }
}

fn ended() -> sprag_core::Error {
    error(ErrorKind::Unavailable, "the thread that connects has ended")
}

/// A store whose connection is being made.
struct Start {
    config: RedisConfig,
    way: Way,
    longest: Arc<Longest>,
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
        let keys = Keys::new(config.prefix.clone(), matches!(config.place, Place::Cluster(_)));
        let dialer = Dialer::new(&config);
        let ear = Ear::new().map_err(|e| ended().caused_by(e))?;
        let longest = Arc::new(Longest::new(keys.longest(), keys.open(), config.longest_ttl));
        let way = Way::start(config.clone(), &longest, opened)?;
        Ok(Self { config, way, longest, dialer, ear, keys })
    }

    fn finish(self, opened: Result<Info>) -> Result<RedisStore> {
        let mut capability = RedisStore::ability();
        let Self { config, way, longest, dialer, ear, keys } = self;
        // Where another server may take over, it may have missed the last writes.
        if opened?.has_log() && matches!(config.place, Place::Server(_)) {
            capability.level = Level::LeaseExclusive;
        }
        let (session, way) = (SessionId::random(&OsEntropy), Arc::new(way));
        let (known, weak) = (Arc::clone(&longest), Arc::downgrade(&way));
        way.run(async move { known.keep_known(weak).await });
        Ok(RedisStore {
            capability,
            way,
            longest,
            channel: keys.channel(session),
            keys,
            min_replicas: config.min_replicas,
            patience: config.timeout / 4,
            session,
            wakeups: Arc::default(),
            dialer,
            ear,
        })
    }
}

#[async_trait]
impl Store for RedisStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let plain = self.keys.plain(&request.name);
        let link = self.link_to(Operation::Acquire, &request.name, &plain).await?;
        if let Err(closed) = link.server.may_grant() {
            return self.acquire_in_quarantine(request, closed).await;
        }
        if request.queue {
            // Whoever handed the lock over has told its fence. If replicas have to confirm it, they
            // have to be asked.
            if min_replicas(self.min_replicas, &link) == 0
                && let Some(fence) = self.wakeups.enter(request.lease)
            {
                // Who is handed the lock pushed nobody aside.
                let grant = Grant { fence, mode: request.mode, took_over: false };
                return Ok(Attempt::Granted(grant));
            }
            self.wakeups.open(request.lease);
        }
        let command = Command::acquire(request, self.session);
        let (answer, link) = self.run_at(Operation::Acquire, &request.name, command).await?;
        // It may be another server than was asked first, or be known better by now.
        if let (Outcome::Granted(_), Err(closed)) = (&answer.outcome, link.server.may_grant()) {
            return self.acquire_in_quarantine(request, closed).await;
        }
        self.heed(request.lease, &answer.outcome);
        let context = answer.context(self.capability.max_waiters);
        let mut attempt = answer.outcome.into_attempt(&answer.record, request, &context);
        if let Ok(Attempt::Held(contention)) = &mut attempt {
            contention.ahead = answer.waiting;
        }
        attempt.map_err(|error| error.at(STORE))
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        if let [renewal] = leases {
            return Ok(vec![self.renew_one(renewal).await?]);
        }
        let asking = leases.iter().enumerate();
        let asking: Vec<_> =
            asking.map(|(at, lease)| async move { (at, self.renew_one(lease).await) }).collect();
        let mut asking = iter(asking).buffer_unordered(RENEWED_AT_ONCE);
        // In time for the client to hear of those that are well.
        let mut enough = Box::pin(self.way.enough_of(renewal_limit(leases) * 3 / 4));
        let late = |renewal: &Renewal| {
            let message = "its server did not answer in time: check that it is running";
            Err(error(ErrorKind::Unavailable, message).during(Operation::Renew).on(&renewal.name))
        };
        let mut renewed: Vec<Result<Renewed>> = leases.iter().map(late).collect();
        while let Either::Left((Some((at, answer)), _)) = select(asking.next(), &mut enough).await {
            renewed[at] = answer;
        }
        drop(asking);
        Renewed::of_each(renewed)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.wakeups.mailboxes.open(conversion.lease);
        let plain = self.keys.plain(&conversion.name);
        let link = self.link_to(Operation::Convert, &conversion.name, &plain).await?;
        if let (Mode::Exclusive, Err(closed)) = (conversion.to, link.server.may_grant()) {
            return self.upgrade_in_quarantine(conversion, None, closed).await;
        }
        self.settle(Operation::Convert, &conversion.name, conversion.lease, true).await?;
        let command = Command::convert(conversion);
        let (answer, link) = self.run_at(Operation::Convert, &conversion.name, command).await?;
        if let (Mode::Exclusive, Outcome::Granted(grant), Err(closed)) =
            (conversion.to, &answer.outcome, link.server.may_grant())
        {
            return self.upgrade_in_quarantine(conversion, Some(*grant), closed).await;
        }
        self.heed(conversion.lease, &answer.outcome);
        let context = answer.context(self.capability.max_waiters);
        answer.outcome.into_converted(conversion, &context).map_err(|error| error.at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.give_back(name, lease).await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        self.settle(Operation::Release, name, lease, true).await?;
        self.run(Operation::Release, name, Command::Withdraw { lease }).await?;
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
            let (names, more) = names::page(self, listing, after.as_ref(), PAGE).await?;
            let Some(last) = names.last().cloned() else { break };
            let looks = names.iter().map(|name| self.look(Operation::List, name));
            for (name, view) in names.iter().zip(join_all(looks).await) {
                // A damaged record must not hide the others.
                let view = match view {
                    Err(error) if error.is_corrupt() => {
                        let lock = name.as_str();
                        tracing::warn!(target: LEFT_OUT, lock, %error, "a record is left out");
                        continue;
                    }
                    view => view?,
                };
                if !view.is_locked() && !view.is_contended() {
                    // Nobody has taken it off the list: it is used often, or has just ended.
                    self.run(Operation::List, &view.name, Command::Reap).await?;
                } else if view.is_contended() || !listing.contended {
                    locks.push(view);
                }
            }
            if locks.len() > limit || !more {
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
        let answer = self.run(Operation::Evict, &eviction.name, command).await?;
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
        let feed = &self.wakeups.evictions;
        let evictions = feed.subscribe_before_connecting();
        Some(if self.listen() { evictions } else { feed.subscribe() })
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        trail::read(self, query).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        trail::note(self, entries).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        diagnose::diagnose(&self.way, self.min_replicas).await
    }
}
