//! [`Connection`]: a process's way to the store. Requests and replies travel, get lost, come late
//! and come twice; the process that sent them may be gone by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::Command;
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal,
    Renewed, Request,
};
use sprag_core::{
    AuditEntry, AuditQuery, Capability, Error, ErrorKind, LeaseId, LockName, LockView, Operation,
    Result, SessionId, Store,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::journal::Who;
use super::sim::{Signal, Sim};
use super::weather::Passage;
use super::world::World;

/// How long everything must have been well before something is called a mistake: longer than
/// any request or pause of the client.
pub(crate) const WELL: Duration = Duration::from_secs(10);

/// One process's connection to the store. It ends with the process; what it sent does not.
pub(crate) struct Connection {
    pub(crate) sim: Arc<Sim>,
    pub(crate) who: Who,
    pub(crate) session: SessionId,
    mailboxes: Arc<Mailboxes>,
    line: Arc<Line>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("who", &self.who).finish_non_exhaustive()
    }
}

/// The state of the line between one process and the store.
#[derive(Debug)]
pub(crate) struct Line {
    cut_until: Mutex<Instant>,
    /// The last time at which this process may have suffered from a fault.
    trouble: Mutex<Instant>,
    /// When the process was paused last, the end of it.
    resumed: Mutex<Instant>,
    /// The client was shut down.
    pub(crate) over: Signal,
}

impl Line {
    fn new() -> Self {
        let now = Instant::now();
        let [cut_until, trouble, resumed] = [now; 3].map(Mutex::new);
        Self { cut_until, trouble, resumed, over: Signal::default() }
    }

    pub(crate) fn cut(&self, length: Duration) {
        *self.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + length;
        self.trouble(length);
    }

    fn is_cut(&self) -> bool {
        Instant::now() < *self.cut_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a fault that lasts for `length`.
    pub(crate) fn trouble(&self, length: Duration) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = (*trouble).max(Instant::now() + length);
    }

    /// The process goes on after a pause.
    pub(crate) fn resumed(&self) {
        *self.resumed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long the process has been running without a pause.
    pub(crate) fn running_for(&self) -> Duration {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// How long everything has been well.
    pub(crate) fn well_for(&self) -> Duration {
        let trouble = *self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        Instant::now().saturating_duration_since(trouble)
    }
}

/// A request on its way.
struct Message {
    operation: Operation,
    leases: Vec<LeaseId>,
    sequence: u64,
    /// Whether the sender has stopped waiting for the answer.
    given_up: Arc<AtomicBool>,
    repeatable: Repeatable,
}

/// Whether a copy of a request may be done again, some time later.
#[derive(Clone)]
enum Repeatable {
    No,
    Yes,
    /// And it is done whenever it arrives, also after those that were sent later. Renewals never move
    /// the end of a lease back, so nobody has to keep them in order.
    Whenever,
    /// An acquire, where the store still knows the lease. Where it does not, the contract wants it to
    /// refuse what comes late, as nobody could tell it from a new one.
    IfKnown(LockName),
}

/// Marks a request as given up, when its future is dropped.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Connection {
    pub(crate) fn open(sim: &Arc<Sim>, who: Who, session: SessionId) -> Self {
        let (mailboxes, line) = (Arc::new(Mailboxes::default()), Arc::new(Line::new()));
        sim.world().connect(session, &mailboxes, &line);
        Self { sim: Arc::clone(sim), who, session, mailboxes, line }
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    async fn send<T: Send + 'static>(
        &self,
        operation: Operation,
        leases: Vec<LeaseId>,
        repeatable: Repeatable,
        act: impl Fn(&mut World) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let passage = self.sim.weather().passage();
        let given_up = Arc::new(AtomicBool::new(false));
        let sequence = self.sim.next_sequence();
        let message =
            Message { operation, leases, sequence, given_up: Arc::clone(&given_up), repeatable };
        let (reply, answer) = oneshot::channel();
        let journey = Journey {
            sim: Arc::clone(&self.sim),
            who: self.who,
            line: Arc::clone(&self.line),
            message,
            passage,
        };
        tokio::spawn(journey.travel(act, reply));
        let _give_up = GiveUp(given_up);
        match answer.await {
            Ok(answer) => answer,
            // Lost without a trace: only a timeout ends the wait.
            Err(_) => std::future::pending().await,
        }
    }
}

struct Journey {
    sim: Arc<Sim>,
    who: Who,
    line: Arc<Line>,
    message: Message,
    passage: Passage,
}

impl Journey {
    async fn travel<T: Send + 'static>(
        self,
        act: impl Fn(&mut World) -> Result<T> + Send + Sync + 'static,
        reply: oneshot::Sender<Result<T>>,
    ) {
        if self.passage.slow {
            self.trouble("request or reply is slow", self.passage.before + self.passage.after);
        }
        if self.line.is_cut() {
            return self.lose("request lost in partition", reply).await;
        }
        sleep(self.passage.before).await;
        if !self.wait_for_the_store().await {
            return self.lose("request lost in outage", reply).await;
        }
        if self.passage.request_lost {
            return self.lose("request lost", reply).await;
        }
        let Some(answer) = self.act(&act, false) else {
            return self.trouble("overtaken request dropped", Duration::ZERO);
        };
        if self.passage.duplicate.is_some() && !matches!(self.message.repeatable, Repeatable::No) {
            tokio::spawn(self.copy().repeat(act));
        }
        sleep(self.passage.after).await;
        if self.line.is_cut() {
            return self.lose("reply lost in partition", reply).await;
        }
        if self.passage.reply_lost {
            return self.lose("reply lost", reply).await;
        }
        // Fails if the caller has stopped waiting.
        drop(reply.send(answer));
    }

    /// A copy of the request, which nobody waits for.
    fn copy(&self) -> Self {
        let message = Message {
            operation: self.message.operation,
            leases: self.message.leases.clone(),
            sequence: self.message.sequence,
            given_up: Arc::new(AtomicBool::new(true)),
            repeatable: self.message.repeatable.clone(),
        };
        let duplicate = self.passage.duplicate;
        Self {
            sim: Arc::clone(&self.sim),
            who: self.who,
            line: Arc::clone(&self.line),
            message,
            passage: Passage { duplicate, ..Passage::default() },
        }
    }

    async fn repeat<T: Send + 'static>(
        self,
        act: impl Fn(&mut World) -> Result<T> + Send + Sync + 'static,
    ) {
        sleep(self.passage.duplicate.unwrap_or_default()).await;
        if self.act(&act, true).is_some() {
            let acquire = matches!(self.message.repeatable, Repeatable::IfKnown(_));
            let what = if acquire { "acquire done twice" } else { "request done twice" };
            self.trouble(what, Duration::ZERO);
        }
    }

    /// Waits while the store stalls; `false` if it cannot be reached.
    async fn wait_for_the_store(&self) -> bool {
        loop {
            let until = self.sim.weather().stall_until();
            if until <= Instant::now() {
                return !self.sim.weather().is_out();
            }
            self.trouble("request waits in stall", until.duration_since(Instant::now()));
            sleep_until(until).await;
        }
    }

    /// Lets the store do what is asked, unless a later request has overtaken it.
    fn act<T>(&self, act: &impl Fn(&mut World) -> Result<T>, copy: bool) -> Option<Result<T>> {
        let given_up = copy || self.message.given_up.load(Ordering::SeqCst);
        let given_up = given_up && !matches!(self.message.repeatable, Repeatable::Whenever);
        let mut world = self.sim.world();
        let repeated = match &self.message.repeatable {
            Repeatable::IfKnown(name) if copy => self.message.leases.first().map(|it| (name, *it)),
            _ => None,
        };
        if repeated.is_some_and(|(name, lease)| !world.knows(name, lease)) {
            return None;
        }
        let was_in = repeated.is_some_and(|(name, lease)| world.is_in(name, lease));
        if !world.arrive(&self.message.leases, self.message.sequence, given_up) {
            return None;
        }
        let answer = act(&mut world);
        let revived = repeated.filter(|(name, lease)| !was_in && world.is_in(name, *lease));
        let woken = world.take_woken();
        let broken = world.take_broken();
        drop(world);
        if let Some(broken) = broken {
            self.sim.fail(format!("the machine broke a rule on {broken}"));
        }
        if let Some((name, lease)) = revived {
            self.sim.fail(format!("a late copy brought {lease:?} back, which was gone, on {name}"));
        }
        for (mailboxes, lease) in woken {
            self.sim.hint(mailboxes, lease);
        }
        Some(answer)
    }

    fn trouble(&self, what: &'static str, length: Duration) {
        self.line.trouble(length);
        self.sim.note(self.who, what, None, self.message.sequence);
    }

    /// Loses the request or its reply: the caller hears nothing, or that the connection broke.
    async fn lose<T>(self, what: &'static str, reply: oneshot::Sender<Result<T>>) {
        self.trouble(what, Duration::ZERO);
        if self.passage.silent {
            return;
        }
        sleep(self.passage.after).await;
        let error = Error::new(ErrorKind::Unavailable, self.message.operation, "connection lost");
        drop(reply.send(Err(error)));
    }
}

#[async_trait]
impl Store for Connection {
    fn capability(&self) -> &Capability {
        &self.sim.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        if request.queue {
            self.mailboxes.open(request.lease);
        }
        let (request, command) = (request.clone(), Command::acquire(request, self.session));
        let repeatable = Repeatable::IfKnown(request.name.clone());
        self.send(Operation::Acquire, vec![request.lease], repeatable, move |world| {
            let outcome = world.run(&request.name, &command);
            world.with(&request.name, |record, context| {
                outcome.into_attempt(record, &request, context)
            })
        })
        .await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let (renewals, session) = (leases.to_vec(), self.session);
        let ids = leases.iter().map(|renewal| renewal.lease).collect();
        let keeps = leases.iter().all(|renewal| renewal.bind == Bind::Keep);
        let repeatable = if keeps { Repeatable::Whenever } else { Repeatable::Yes };
        self.send(Operation::Renew, ids, repeatable, move |world| {
            let mut renew = |renewal: &Renewal| {
                let outcome = world.run(&renewal.name, &Command::renew(renewal, session));
                world.with(&renewal.name, |record, _| outcome.into_renewed(record, renewal))
            };
            Ok(renewals.iter().map(&mut renew).collect())
        })
        .await
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        self.mailboxes.open(conversion.lease);
        let conversion = conversion.clone();
        self.send(Operation::Convert, vec![conversion.lease], Repeatable::Yes, move |world| {
            let outcome = world.run(&conversion.name, &Command::convert(&conversion));
            world.with(&conversion.name, |_, context| outcome.into_converted(&conversion, context))
        })
        .await
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        self.mailboxes.close(lease);
        let name = name.clone();
        self.send(Operation::Release, vec![lease], Repeatable::Yes, move |world| {
            Ok(world.run(&name, &Command::Release { lease }).into_released())
        })
        .await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let name = name.clone();
        self.send(Operation::Release, vec![lease], Repeatable::Yes, move |world| {
            world.run(&name, &Command::Withdraw { lease });
            Ok(())
        })
        .await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let (name, stale) = (name.clone(), self.sim.stale_read(self.who));
        let look = move |world: &mut World| Ok(world.view(&name, stale));
        self.send(Operation::Inspect, Vec::new(), Repeatable::No, look).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let (listing, stale) = (listing.clone(), self.sim.stale_read(self.who));
        let look = move |world: &mut World| Ok(world.page(&listing, stale));
        self.send(Operation::List, Vec::new(), Repeatable::No, look).await
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let eviction = eviction.clone();
        self.send(Operation::Evict, Vec::new(), Repeatable::Yes, move |world| {
            Ok(world.run(&eviction.name, &Command::evict(&eviction)).into_evicted())
        })
        .await
    }

    async fn changed(&self, _name: &LockName, lease: LeaseId) {
        if self.sim.weather().needless_hint() {
            self.sim.note(self.who, "needless hint", None, 0);
            sleep(Duration::from_millis(7)).await;
            return;
        }
        self.mailboxes.wait(lease).await;
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let query = query.clone();
        let look = move |world: &mut World| Ok(world.trail().read(&query));
        self.send(Operation::Audit, Vec::new(), Repeatable::No, look).await
    }

    async fn note(&self, entries: &[AuditEntry]) -> Result<()> {
        let entries = entries.to_vec();
        self.send(Operation::Audit, Vec::new(), Repeatable::Yes, move |world| {
            world.trail().append(entries.iter().cloned());
            Ok(())
        })
        .await
    }
}
