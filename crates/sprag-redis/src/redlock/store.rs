//! [`RedlockStore`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};
use sprag_core::clock::{BootClock, Clock};
use sprag_core::diagnosis::Finding;
use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::record::{Outcome, Record, wire};
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Evicted, Eviction, Grant, Listing, Page, Released,
    Renewal, Renewed, Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, Fence, LeaseId, Level, LockName, LockView, Loss, Mode, Operation,
    Result, SessionId, Store,
};
use tokio::sync::oneshot;

use super::answer::{About, Said};
use super::ballot::Ballot;
use super::membership::{GRACE, Membership};
use super::names::names;
use super::nodes::{Ask, Failures, Nodes};
use super::{RedlockConfig, STORE, diagnose};
use crate::error::error;
use crate::script::Script;

/// How many locks a page of [`Store::list`] has by default, and at most.
const PAGE: usize = 1000;
/// How often nodes are asked within one attempt.
const ROUNDS: usize = 8;
/// How far the fence that is proposed is ahead of the nodes' clocks: longer than a request takes.
const LEAD: Duration = Duration::from_millis(20);
/// How long to wait between two looks, for one that waits alone and for each of many.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_OF_MANY: Duration = Duration::from_millis(4);

/// Locks that a majority of independent Redis servers agrees on.
///
/// It holds as long as a majority of the nodes is there, however slow or dead the others are.
/// Exclusive locks only: what nodes agree on by majority is who has a key, not who is next.
///
/// # Guarantees
///
/// L2 as long as the clocks of the nodes run at the same speed and do not jump. Fences grow in the
/// order of grants, also when nodes are restarted empty, as long as their clocks differ by less
/// than the time that such a node does not vote.
#[derive(Debug)]
pub struct RedlockStore {
    capability: Capability,
    config: RedlockConfig,
    nodes: Arc<Nodes>,
    membership: Arc<Membership>,
    /// Who adopts a lease here.
    session: String,
    /// Numbers the attempts, so that a late request is known for one.
    attempts: AtomicU64,
    waiting: AtomicUsize,
}

impl RedlockStore {
    /// What every Redlock can do.
    pub const fn ability() -> Capability {
        let mut able = Capability::full(STORE, Level::LeaseExclusive);
        able.shared = false;
        able.permits = false;
        able.queue = false;
        able.steal = false;
        able.audit = false;
        (able.notify, able.eviction_hints) = (false, false);
        able
    }

    /// Connects, and blocks until a majority of the nodes has answered.
    ///
    /// # Errors
    ///
    /// If a majority cannot be reached, refuses, or cannot keep the promise; with the reasons.
    pub fn open(config: RedlockConfig) -> Result<Self> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let store = Self::start(config, move |opened| drop(tell.send(opened)))?;
        told.recv().map_err(|_| ended())?.map(|()| store)
    }

    /// Connects to a majority of the nodes.
    ///
    /// # Errors
    ///
    /// As [`RedlockStore::open`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the connections are closed.
    pub async fn connect(config: RedlockConfig) -> Result<Self> {
        let (tell, told) = oneshot::channel();
        let store = Self::start(config, move |opened| drop(tell.send(opened)))?;
        told.await.map_err(|_| ended())?.map(|()| store)
    }

    fn start(
        config: RedlockConfig,
        opened: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<Self> {
        config.check()?;
        let nodes = Arc::new(Nodes::start(&config)?);
        let membership = Arc::new(Membership::new(&config));
        let (asked, admits) = (Arc::clone(&nodes), Arc::clone(&membership));
        nodes.timers.run(async move {
            let (census, failures) = admits.admit(&asked, asked.timeout).await;
            let heard = census.votes.len() + census.rests.len();
            let failed = || Err(asked.no_majority(Operation::Open, None, &failures));
            opened(if heard < asked.majority() { failed() } else { Ok(()) });
        });
        Ok(Self {
            capability: Self::ability(),
            config,
            nodes,
            membership,
            session: SessionId::random(&OsEntropy).to_string(),
            attempts: AtomicU64::new(1),
            waiting: AtomicUsize::new(0),
        })
    }

    /// From time to time, lets in nodes that have forgotten their locks. Nobody waits for it, and
    /// nobody needs them for now: once the others are down, there is nobody to say when they may vote.
    fn look_after_members(&self) {
        if self.membership.is_due(BootClock.now()) {
            let (nodes, membership) = (Arc::clone(&self.nodes), Arc::clone(&self.membership));
            self.nodes.timers.run(async move {
                drop(membership.admit(&nodes, GRACE).await);
            });
        }
    }

    /// A fence that is larger than what any node would choose by itself.
    fn proposal(&self) -> String {
        if !self.config.fences {
            return "0".into();
        }
        let times =
            (0..self.nodes.count()).map(|node| self.nodes.link(node).server.time_after(LEAD));

        (times.flatten().max().unwrap_or(0) * 1000).max(1).to_string()
    }

    /// Asks for votes until they are decided, or the time is over.
    async fn vote(&self, request: &Request, attempt: u64) -> Result<(Ballot, Failures)> {
        let keys = self.nodes.keys(&request.name)?;
        let about = About {
            party: request.party,
            holder: request.holder.clone(),
            fixed: request.fixed || request.detached,
        };
        let about = serde_json::to_string(&about).map_err(|e| strange(&e))?;
        let (lease, attempt) = (request.lease.to_string(), attempt.to_string());
        let (ttl, detached) = (request.ttl.as_millis().to_string(), u8::from(request.detached));
        let who = format!("{lease}{detached}{attempt}:{ttl}:{about}");
        let proposal = self.proposal();
        let patience = self.config.patience(request.ttl);
        let end = BootClock.now().plus(patience);
        let take = |node: usize| {
            // A node that was never reached has no clock yet; then the request is freed behind it.
            let not_after = self.nodes.link(node).server.time_after(patience);
            let not_after = not_after.unwrap_or(Fence::MAX.get()).to_string();
            let arguments =
                [&lease, &attempt, &ttl, &not_after, &proposal, &who].map(String::as_str);
            (node, Nodes::call(Script::RedlockTake, &keys, &arguments))
        };
        let mut ballot = Ballot::new(request.lease, self.nodes.count());
        let mut asks: Vec<Ask> = (0..self.nodes.count()).map(take).collect();
        let (mut failures, mut kept_out) = (Failures::default(), Vec::new());
        for _ in 0..ROUNDS {
            let left = end.since(BootClock.now());
            asks.iter().for_each(|(node, _)| ballot.take_back(*node));
            let asked = self.nodes.ask(asks, left, |node, answer| {
                ballot.put(node, answer);
                !ballot.is_open()
            });
            failures.absorb(asked.await);
            if ballot.is_won() || ballot.gone().is_some() || ballot.is_hopeless() {
                break;
            }
            if ballot.is_anybody_fresh() {
                let (census, _) = self.membership.admit(&self.nodes, GRACE).await;
                kept_out = census.fresh.into_iter().map(|(node, _)| node).collect();
            }
            let again = ballot.ask_again().into_iter();
            asks = again.filter(|node| !kept_out.contains(node)).map(take).collect();
            if asks.is_empty() || end <= BootClock.now() {
                break;
            }
        }
        Ok((ballot, failures))
    }

    /// Makes the fence of a majority known to a majority that holds the key.
    async fn store_fence(
        &self,
        request: &Request,
        attempt: u64,
        ballot: &Ballot,
    ) -> Result<Result<Fence, Failures>> {
        let (fence, mut stored) = ballot.fence();
        if stored.len() >= self.nodes.majority() && ballot.agree() {
            return Ok(Ok(fence));
        }
        let (lease, attempt) = (request.lease.to_string(), attempt.to_string());
        let number = fence.to_string();
        let arguments = ["store", &lease, &attempt, &number];
        let call = Nodes::call(Script::RedlockTend, &self.nodes.keys(&request.name)?, &arguments);
        // Those that have not voted yet hear of it behind the question.
        let tell = |(node, _): &Ask| !stored.contains(node) && !ballot.has_nothing(*node);
        let asks: Vec<Ask> = self.nodes.all(&call).into_iter().filter(tell).collect();
        if stored.len() >= self.nodes.majority() {
            self.nodes.tell(asks).await;
            return Ok(Ok(fence));
        }
        let patience = self.config.patience(request.ttl);
        let failures = self
            .nodes
            .ask(asks, patience, |node, answer| {
                if answer.is_some_and(|answer| matches!(answer.said, Said::Yes(_))) {
                    stored.push(node);
                }
                stored.len() >= self.nodes.majority()
            })
            .await;
        Ok(if stored.len() >= self.nodes.majority() { Ok(fence) } else { Err(failures) })
    }

    /// Frees what an attempt got, wherever it may have got it. Nobody waits for it.
    async fn give_up(&self, request: &Request, attempt: u64, ballot: &Ballot) -> Result<()> {
        let (keys, lease) = (self.nodes.keys(&request.name)?, request.lease.to_string());
        let call = Nodes::call(Script::RedlockTend, &keys, &["free", &lease, &attempt.to_string()]);
        let asks = self.nodes.all(&call).into_iter().filter(|(node, _)| !ballot.has_nothing(*node));
        self.nodes.tell(asks.collect()).await;
        Ok(())
    }

    /// Asks all nodes about a lease, until a majority has answered what `is_answer` accepts.
    async fn tend(
        &self,
        name: &LockName,
        arguments: &[&str],
        patience: Duration,
        mut enough: impl FnMut(&[Said]) -> bool + Send,
    ) -> Result<(Vec<Said>, Failures)> {
        let call = Nodes::call(Script::RedlockTend, &self.nodes.keys(name)?, arguments);
        let mut heard = Vec::new();
        let failures = self
            .nodes
            .ask(self.nodes.all(&call), patience, |_, answer| {
                heard.extend(answer.map(|answer| answer.said));
                enough(&heard)
            })
            .await;
        Ok((heard, failures))
    }

    async fn extend(&self, renewal: &Renewal) -> Result<Renewed> {
        self.membership.uses(renewal.ttl);
        let (lease, ttl) = (renewal.lease.to_string(), renewal.ttl.as_millis().to_string());
        let owner = match renewal.bind {
            Bind::Keep => "",
            Bind::Detach => "-",
            Bind::Attach => &self.session,
        };
        let majority = self.nodes.majority();
        let lost = |heard: &[Said]| heard.len() - yes(heard).count() >= majority;
        let (heard, failures) = self
            .tend(
                &renewal.name,
                &["extend", &lease, &ttl, owner],
                self.config.patience(renewal.ttl),
                |heard| yes(heard).count() >= majority || lost(heard),
            )
            .await?;
        if yes(&heard).count() >= majority {
            // Those that stored the grant's fence are a majority: it is what most of them say.
            let most = |fence: &Fence| (yes(&heard).filter(|other| other == fence).count(), *fence);
            let fence = yes(&heard).max_by_key(most).filter(|_| self.config.fences);
            let fence = fence.unwrap_or(Fence::ZERO);
            return Ok(Renewed::Held(grant(fence)));
        }
        if lost(&heard) {
            return Ok(Renewed::Lost(reason(&heard)));
        }
        let name = Some(&renewal.name);
        Err(self.nodes.no_majority(Operation::Renew, name, &failures))
    }

    async fn look(&self, operation: Operation, name: &LockName) -> Result<LockView> {
        let call = Nodes::call(Script::RedlockLook, &self.nodes.keys(name)?, &["lock"]);
        let mut ballot = Ballot::new(LeaseId::from_u128(0), self.nodes.count());
        let mut heard = 0;
        let failures = self
            .nodes
            .ask(self.nodes.all(&call), self.nodes.timeout, |node, answer| {
                // Who cannot be asked may have a vote for the holder all the same.
                if answer.is_some() {
                    heard += 1;
                    ballot.put(node, answer);
                }
                ballot.is_settled()
            })
            .await;
        if heard < self.nodes.majority() {
            return Err(self.nodes.no_majority(operation, Some(name), &failures));
        }
        let holders = ballot.likely_holder().cloned().into_iter().collect();
        let record = Record { fence: ballot.newest_fence(), holders, ..Record::default() };
        Ok(record.view(name, &wire::clock_only(ballot.newest_us, 0)))
    }
}

fn grant(fence: Fence) -> Grant {
    Grant { fence, mode: Mode::Exclusive, took_over: false }
}

fn yes(heard: &[Said]) -> impl Iterator<Item = Fence> + '_ {
    heard.iter().filter_map(|said| match said {
        Said::Yes(fence) => Some(*fence),
        _ => None,
    })
}

/// Why a lease is over that a majority does not have.
fn reason(heard: &[Said]) -> Loss {
    let forgotten = heard.iter().any(|said| matches!(said, Said::Fresh | Said::Rests(_)));
    let gone = heard.iter().find_map(|said| match said {
        Said::Gone(loss) => Some(loss.clone()),
        _ => None,
    });
    gone.unwrap_or(if forgotten { Loss::StateLost } else { Loss::Expired })
}

fn ended() -> Error {
    error(ErrorKind::Unavailable, "the thread that connects has ended")
}

fn strange(e: &serde_json::Error) -> Error {
    error(ErrorKind::Corrupt, format!("a holder cannot be written: {e}"))
}

/// Counts one waiter while it exists.
struct Waiter<'a>(&'a AtomicUsize);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for RedlockStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        self.membership.uses(request.ttl);
        self.look_after_members();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let (ballot, mut failures) = self.vote(request, attempt).await?;
        if ballot.is_won() {
            match self.store_fence(request, attempt, &ballot).await? {
                Ok(fence) => return Ok(Attempt::Granted(grant(fence))),
                Err(failed) => failures = failed,
            }
        }
        self.give_up(request, attempt, &ballot).await?;
        if let Some(loss) = ballot.gone() {
            return Ok(Attempt::Gone(loss));
        }
        let Some(hold) = ballot.holder() else {
            for (node, why) in ballot.abstentions() {
                failures.add(node, format!("{} {why}", self.nodes.link(node).address()));
            }
            let name = Some(&request.name);
            return Err(self.nodes.no_majority(Operation::Acquire, name, &failures));
        };
        let record = Record { holders: vec![hold.clone()], ..Record::default() };
        let context = wire::clock_only(ballot.newest_us, 0);
        Outcome::Held.into_attempt(&record, request, &context)
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        self.look_after_members();
        Renewed::of_each(join_all(leases.iter().map(|renewal| self.extend(renewal))).await)
    }

    async fn convert(&self, conversion: &Conversion) -> Result<Converted> {
        let message = "this store has no read-write locks";
        Err(Error::new(ErrorKind::Unsupported, Operation::Convert, message)
            .on(&conversion.name)
            .at(STORE))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let (lease, released) = (lease.to_string(), "\"released\"");
        let majority = self.nodes.majority();
        // What an earlier release has done whose answer was lost counts as well.
        let freed = |said: &&Said| matches!(said, Said::Yes(_) | Said::Gone(Loss::Released));
        let split = |heard: &[Said]| {
            let freed = heard.iter().filter(freed).count();
            (freed, heard.len() - freed)
        };
        let (heard, failures) = self
            .tend(name, &["end", &lease, released], self.nodes.timeout, |heard| {
                let (freed, others) = split(heard);
                freed >= majority || others >= majority
            })
            .await?;
        if heard.len() < majority {
            return Err(self.nodes.no_majority(Operation::Release, Some(name), &failures));
        }
        if yes(&heard).count() > 0 && split(&heard).1 < majority {
            return Ok(Released::Freed);
        }
        Ok(Released::AlreadyGone(reason(&heard)))
    }

    async fn withdraw(&self, _name: &LockName, _lease: LeaseId) -> Result<()> {
        // Nobody waits here: there is nothing to leave.
        Ok(())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        self.look(Operation::Inspect, name).await
    }

    async fn list(&self, listing: &Listing) -> Result<Page> {
        let limit = if listing.limit == 0 { PAGE } else { listing.limit.min(PAGE) };
        let mut locks = Vec::new();
        if listing.contended {
            return Ok(Page::default());
        }
        let names: Vec<_> = names(&self.nodes, listing).await?.into_iter().collect();
        for names in names.chunks(PAGE) {
            let looks = names.iter().map(|name| self.look(Operation::List, name));
            locks.extend(try_join_all(looks).await?.into_iter().filter(LockView::is_locked));
            if locks.len() > limit {
                break;
            }
        }
        let more = locks.len() > limit;
        locks.truncate(limit);
        let next = if more { locks.last().map(|view| view.name.clone()) } else { None };
        Ok(Page { locks, next })
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let name = &eviction.name;
        let view = self.look(Operation::Evict, name).await?;
        let Some(found) = view.holders.into_iter().find(|found| found.fence == eviction.fence)
        else {
            return Ok(Evicted::NotHeld);
        };
        let (by, why) = (eviction.by.clone(), eviction.reason.clone());
        let loss = Loss::Broken { by, reason: why, fence: eviction.fence };
        let loss = serde_json::to_string(&loss).map_err(|e| strange(&e))?;
        let (lease, majority) = (found.lease.to_string(), self.nodes.majority());
        let (heard, failures) = self
            .tend(name, &["break", &lease, &loss], self.nodes.timeout, |heard| {
                heard.len() >= majority
            })
            .await?;
        if heard.len() < majority {
            return Err(self.nodes.no_majority(Operation::Evict, Some(name), &failures));
        }
        if yes(&heard).count() == 0 {
            return Ok(Evicted::NotHeld);
        }
        Ok(Evicted::Broken(vec![found.holder]))
    }

    /// Nodes wake nobody. So a waiter looks again after a random time, the longer the more of this
    /// process wait.
    async fn changed(&self, _name: &LockName, _lease: LeaseId) {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiter = Waiter(&self.waiting);
        let crowd = u32::try_from(others).unwrap_or(u32::MAX);
        let usual = LOOK.max(LOOK_OF_MANY.saturating_mul(crowd));
        self.nodes.timers.sleep(usual.mul_f64(0.5 + OsEntropy.next_fraction())).await;
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        diagnose::diagnose(&self.nodes, self.config.fences).await
    }
}
