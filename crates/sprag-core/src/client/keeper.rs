//! [`Keeper`]: renews what is held, cleans up what was dropped. Lives on the client's own thread,
//! so that a blocked or ended runtime of the user loses no lock and leaks none.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;

use super::core::{CLEAN_UP_LIMIT, Core};
use super::lease::Lease;
use super::tenure::Phase;
use crate::audit::{AuditEntry, AuditKind};
use crate::clock::Moment;
use crate::evictions::Evictions;
use crate::id::LeaseId;
use crate::loss::Loss;

/// While anything is held the keeper looks at the clock this often: its timers stand still
/// during suspend, the clock does not.
const TICK: Duration = Duration::from_secs(1);
/// How long the keeper goes on cleaning up after the last handle is gone.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What the keeper is asked to do.
pub(crate) enum Order {
    /// Release by lease id, whatever state it is in.
    Release(Arc<Lease>),
    /// Stop waiting for an upgrade.
    Withdraw(Arc<Lease>),
    /// Tell when everything ordered so far is done.
    Flush(Flush),
}

/// Somebody who waits for the keeper to be done; told by being dropped.
pub(crate) struct Flush(#[expect(dead_code, reason = "kept only to be dropped")] Box<dyn Send>);

impl Flush {
    pub(crate) fn new(sender: impl Send + 'static) -> Self {
        Self(Box::new(sender))
    }
}

/// The client's own worker, as a future. [`Client::new`](super::Client::new) runs it on a thread;
/// a simulation runs it wherever it likes, see [`ClientBuilder::drive`](super::ClientBuilder::drive).
pub struct Keeper {
    pub(super) core: Arc<Core>,
    pub(super) orders: UnboundedReceiver<Order>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

type Work = FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>;

enum Done {
    Renewed,
    CleanedUp,
    WrittenDown,
}

impl Keeper {
    /// Works until the last handle of the client is gone and everything is cleaned up.
    pub async fn run(mut self) {
        let mut work = Work::new();
        let mut cleaning = 0_usize;
        let mut writing = false;
        let mut flushes: Vec<Flush> = Vec::new();
        let mut watch = EvictionWatch::default();
        loop {
            // Renewals first, ahead of everything.
            self.renew_due(&work);
            let now = self.core.now();
            let planned = self.plan(now);
            tokio::select! {
                biased;
                Some(done) = work.next(), if !work.is_empty() => match done {
                    Done::CleanedUp => cleaning -= 1,
                    Done::WrittenDown => writing = false,
                    Done::Renewed => {}
                },
                order = self.orders.recv() => match order {
                    Some(Order::Flush(flush)) => flushes.push(flush),
                    Some(Order::Release(lease)) => {
                        cleaning += 1;
                        work.push(clean_up(Arc::clone(&self.core), lease));
                    }
                    Some(Order::Withdraw(lease)) => {
                        cleaning += 1;
                        work.push(withdraw(Arc::clone(&self.core), lease));
                    }
                    None => break,
                },
                entries = self.core.notes.next(), if !writing => {
                    writing = true;
                    work.push(write_down(Arc::clone(&self.core), entries));
                }
                () = self.core.registry.woken_before(planned) => {}
                () = self.core.store.severed() => self.end_severed(),
                hint = watch.next() => self.core.registry.hurry(hint),
                () = self.core.sleep(planned.since(now)) => {
                    self.end_severed();
                    watch.start(&self.core);
                }
            }
            if cleaning == 0 && !writing && self.core.notes.is_empty() {
                flushes.clear();
            }
        }
        if !self.core.notes.is_empty() {
            work.push(write_down(Arc::clone(&self.core), self.core.notes.take()));
        }
        let limit = self.core.sleep(LAST_WORDS);
        tokio::select! {
            biased;
            () = async { while work.next().await.is_some() {} } => {}
            () = limit => {}
        }
    }

    fn plan(&self, now: Moment) -> Moment {
        let earliest = self.core.registry.earliest();
        if earliest == Moment::NEVER {
            now.plus(Duration::from_secs(3600))
        } else {
            earliest.min(now.plus(TICK))
        }
    }

    /// Takes away what was held by a session that is over, or may be.
    fn end_severed(&self) {
        for lease in self.core.registry.all() {
            if self.core.store.is_severed(lease.id)
                && lease.with(|tenure| *tenure.phase() == Phase::Holding)
                && let Err(loss) = self.core.check(&lease)
            {
                self.tell_loss(&lease, &loss);
            }
        }
    }

    /// Tells in the audit trail what the store does not know.
    fn tell_loss(&self, lease: &Lease, loss: &Loss) {
        self.core.note(lease, AuditKind::Lost, loss.to_string());
    }

    /// Starts one batch for everything that is held and due now, or within half of the time
    /// between two renewals: of two batches, one is that close behind the other, so that all of
    /// them soon are one. Another one is for everything that waits.
    fn renew_due(&self, work: &Work) {
        let now = self.core.now();
        if self.core.registry.earliest() > now {
            return;
        }
        let ahead = |lease: &Arc<Lease>| lease.with(|tenure| tenure.ttl()) / 6;
        let mut due = self.core.registry.take_due(now);
        let slack = due.iter().map(ahead).min().unwrap_or_default();
        due.extend(self.core.registry.take_due(now.plus(slack)));
        let (batch, others): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|lease| lease.with(|tenure| tenure.begin_renewal(now)));
        for lease in others {
            if lease.with(|tenure| tenure.is_left()) {
                // Its time has come in the store too.
                self.core.registry.remove(&lease);
                continue;
            }
            // Not to be renewed any more: its time is up, or it only wants to be looked at.
            let asking = lease.with(|tenure| *tenure.phase() == Phase::Asking);
            if !asking
                && let Err(loss) = lease.check(now)
                && loss != Loss::Released
            {
                self.tell_loss(&lease, &loss);
            } else {
                self.core.registry.reschedule(&lease);
            }
        }
        for lease in &batch {
            // Its deadline may come before the answer does.
            self.core.registry.reschedule(lease);
        }
        // Apart, and what is held first: it must not be late because thousands wait.
        let held = |lease: &Arc<Lease>| lease.with(|tenure| *tenure.phase() == Phase::Holding);
        let (held, waiting): (Vec<_>, Vec<_>) = batch.into_iter().partition(held);
        for batch in [held, waiting].into_iter().filter(|batch| !batch.is_empty()) {
            let core = Arc::clone(&self.core);
            work.push(Box::pin(async move {
                core.renew(batch).await;
                Done::Renewed
            }));
        }
    }
}

/// Whether and where it is heard that locks were taken away.
#[derive(Default)]
struct EvictionWatch {
    asked: bool,
    evictions: Option<Evictions>,
}

impl EvictionWatch {
    /// Starts once something is held, when the keeper looks at the clock: most locks are not held for
    /// that long.
    fn start(&mut self, core: &Core) {
        if self.asked || !core.registry.is_holding_any() {
            return;
        }
        self.asked = true;
        if core.store.capability().eviction_hints {
            self.evictions = core.store.evictions();
        }
    }

    async fn next(&mut self) -> Option<LeaseId> {
        match &mut self.evictions {
            Some(evictions) => evictions.next().await,
            None => std::future::pending().await,
        }
    }
}

fn clean_up(core: Arc<Core>, lease: Arc<Lease>) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async move {
        lease.with(|tenure| tenure.end());
        match core.release(&lease, CLEAN_UP_LIMIT).await {
            Ok(_) => core.registry.remove(&lease),
            // Stays in the registry, to be reported at shutdown, until the store's TTL frees it.
            Err(error) => {
                core.registry.leave(&lease, core.now());
                tracing::warn!(target: "sprag::release", lock = %lease.name, %error, "not released");
            }
        }
        Done::CleanedUp
    })
}

fn write_down(
    core: Arc<Core>,
    entries: Vec<AuditEntry>,
) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async move {
        let count = entries.len();
        core.write_down(entries).await;
        core.notes.settle(count);
        Done::WrittenDown
    })
}

fn withdraw(core: Arc<Core>, lease: Arc<Lease>) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(async move {
        if let Err(error) = core.withdraw(&lease, CLEAN_UP_LIMIT).await {
            tracing::warn!(target: "sprag::release", lock = %lease.name, %error, "not withdrawn");
        }
        Done::CleanedUp
    })
}
