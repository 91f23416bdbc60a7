//! The way from a request to a guard: ask, wait, ask again, enter.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::core::{Core, REQUEST_TIMEOUT};
use super::lease::Lease;
use super::meter::{Meter, Waiting};
use super::own::waits_for_itself;
use super::suspicion::Suspicion;
use super::tenure::{Phase, Tenure};
use super::{LockGuard, LockRequest, Pending, Wait};
use crate::audit::AuditKind;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::{LeaseId, PartyId};
use crate::loss::Loss;
use crate::mutant::mutant;
use crate::name::LockName;
use crate::policy::{Backoff, RetryConfig};
use crate::store::{Attempt, Bind, Contention, Request};
use crate::view::HolderView;

/// How often a store that does not answer is asked again, within one acquire.
const STORE_RETRIES: RetryConfig = RetryConfig {
    max_attempts: 5,
    initial_delay: Duration::from_millis(50),
    max_delay: Duration::from_secs(1),
    backoff_multiplier: 2.0,
};
/// For one that waits in the store already: it outlasts the restart or failover of a server.
const WAITER_RETRIES: RetryConfig = RetryConfig { max_attempts: 24, ..STORE_RETRIES };
/// How often a lock is looked at by those whose turn is next, although a hint should come.
const LOOK: Duration = Duration::from_millis(250);
/// So many are next.
const NEXT: usize = 2;
/// How often by those further back: the further, the more seldom, so that a long queue asks hardly
/// more than a short one.
const SELDOM: Duration = Duration::from_secs(1);
const MOST_SELDOM: u32 = 15;
/// How long after the end of a lease a waiter looks, for each one that is ahead of it.
const STAGGER: Duration = Duration::from_millis(20);

pub(super) async fn acquire(request: LockRequest) -> Result<LockGuard> {
    let name = request.validate()?;
    let core = Arc::clone(&request.client.inner.core);
    let span = tracing::debug_span!(
        target: "sprag::acquire", "sprag acquire",
        lock = %name, mode = %request.mode, store = core.telemetry.store
    );
    let meter = Meter::start(&core, request.mode);
    let store = core.telemetry.store;
    let acquired = Acquisition::new(request, name.clone(), &core).run().instrument(span).await;
    meter.finish(acquired.as_ref().err());
    if let Ok(guard) = &acquired {
        guard.begin_span();
    }
    acquired.map_err(|error| error.on(&name).at(store))
}

struct Acquisition<'a> {
    request: LockRequest,
    name: LockName,
    core: &'a Core,
    party: PartyId,
    started: Moment,
    deadline: Moment,
    suspicion: Suspicion,
    contended: bool,
    /// How many times the lock was looked at in vain.
    looks: u32,
}

impl<'a> Acquisition<'a> {
    fn new(request: LockRequest, name: LockName, core: &'a Core) -> Self {
        let started = core.now();
        let deadline = match request.wait {
            _ if !request.strategy.waits() => started,
            Wait::No => started,
            Wait::AtMost(limit) => started.plus(limit),
            Wait::Forever => Moment::NEVER,
        };
        let party = request.party.unwrap_or_else(|| request.client.current_party());
        let suspicion = Suspicion::new(started);
        Self {
            request,
            name,
            core,
            party,
            started,
            deadline,
            suspicion,
            contended: false,
            looks: 0,
        }
    }

    async fn run(mut self) -> Result<LockGuard> {
        loop {
            let tenure =
                Tenure::new(self.request.ttl, self.request.auto_renew, self.request.max_hold);
            let id = self.request.client.new_lease_id();
            let (name, holder) = (self.name.clone(), self.request.holder.clone());
            let (mode, telemetry) = (self.request.mode, self.core.telemetry);
            let lease = Lease::new(id, self.party, name, mode, holder, tenure, telemetry);
            let pending = self.request.client.register(lease, None)?;
            // Usually one round. Another one, with a new lease, if the place was lost while
            // waiting: the store forgot it, or this process slept too long.
            let lease = Arc::clone(&pending.lease);
            match self.round(pending).await {
                Ok(Some(guard)) => return Ok(guard),
                Ok(None) => {}
                Err(error) => {
                    self.note_refusal(&lease, &error);
                    return Err(error);
                }
            }
            self.core.telemetry.retried("place_lost");
        }
    }

    /// Who did not get the lock is in the audit trail; who only tried is not.
    fn note_refusal(&self, lease: &Lease, error: &Error) {
        let refused = error.is_held() || error.is_timeout() || error.is_deadlock();
        if refused && !self.request.quiet {
            self.core.note(lease, AuditKind::Refused, error.message().to_owned());
        }
    }

    fn waits(&self) -> bool {
        self.deadline > self.started
    }

    fn ask(&self, lease: LeaseId) -> Request {
        Request {
            name: self.name.clone(),
            lease,
            party: self.party,
            mode: self.request.mode,
            ttl: self.request.ttl,
            queue: self.waits() && self.core.store.capability().queue,
            priority: self.request.priority,
            holder: {
                let mut holder = self.request.holder.clone();
                holder.since_unix_ms.get_or_insert(self.core.clock.unix_micros() / 1000);
                holder
            },
            detached: self.request.detached,
            fixed: !self.request.auto_renew,
            takeover: self.request.strategy.takeover(),
            resize: self.request.resize,
        }
    }

    /// Asks with one lease until it is granted, or until it is clear that it will not be.
    async fn round(&mut self, pending: Pending) -> Result<Option<LockGuard>> {
        let lease = Arc::clone(&pending.lease);
        let request = self.ask(lease.id);
        // Who does not want to wait at all has the time of one request to get over a failure.
        let give_up = self.deadline.max(self.started.plus(REQUEST_TIMEOUT));
        let mut failures = Backoff::new(STORE_RETRIES, Some(give_up));
        let mut has_place = false;
        loop {
            let last_chance = self.core.now() >= self.deadline;
            let sent = self.core.now();
            lease.with(|tenure| tenure.asked(sent));
            let asking = self.core.store.try_acquire(&request);
            let answer = self.core.request(Operation::Acquire, self.request.ttl, asking).await;
            // A shutdown releases the lease meanwhile, and that is what the answer tells then.
            self.ensure_not_shut_down(&lease)?;
            match answer {
                Ok(Attempt::Granted(grant)) => {
                    let now = self.core.now();
                    lease.with(|tenure| tenure.offered(grant, now));
                    return self.enter(pending).await;
                }
                Ok(Attempt::Gone(loss)) => return self.place_lost(pending, loss),
                Ok(Attempt::Held(contention)) if !self.waits() => {
                    pending.forget();
                    return Err(self.give_up(ErrorKind::Held, &contention));
                }
                Ok(answer @ (Attempt::Held(_) | Attempt::Queued(_))) => {
                    let (contention, queued) = split(answer);
                    has_place = queued;
                    lease.with(|tenure| tenure.not_granted(sent, queued));
                    self.core.registry.reschedule(&lease);
                    failures = Backoff::new(WAITER_RETRIES, Some(self.deadline));
                    if let Err(error) = self.may_wait(&contention, last_chance) {
                        self.leave(pending).await;
                        return Err(error);
                    }
                    self.pause(&lease, &contention).await?;
                }
                // A full store hands the lock over all the same to a waiter that has its place.
                Err(error) if error.is_indeterminate() || (has_place && error.is_store_full()) => {
                    // Unknown: it may have been done. The same lease asks again, and the store
                    // recognises it; nothing is assumed either way.
                    if mutant!("unknown_means_failed") {
                        pending.forget();
                        return Ok(None);
                    }
                    self.core.telemetry.retried("unknown");
                    let fraction = self.core.entropy.next_fraction();
                    let Some(delay) = failures.next(self.core.now(), fraction) else {
                        return Err(error);
                    };
                    self.core.sleep(delay).await;
                }
                Err(error) => return Err(error),
            }
            self.ensure_not_shut_down(&lease)?;
            if lease.with(|tenure| tenure.grant()).is_some() {
                return self.enter(pending).await;
            }
        }
    }

    fn ensure_not_shut_down(&self, lease: &Lease) -> Result<()> {
        if lease.with(|tenure| *tenure.phase() != Phase::Ended) {
            return Ok(());
        }
        let message = "the client was shut down while waiting";
        Err(Error::new(ErrorKind::ShutDown, Operation::Acquire, message).on(&self.name))
    }

    /// Enters what was granted. If a good part of the TTL may have passed since, the store is
    /// asked to renew first, so that the caller gets the whole of it.
    async fn enter(&mut self, pending: Pending) -> Result<Option<LockGuard>> {
        let now = self.core.now();
        if pending.lease.with(|tenure| tenure.wants_confirmation(now)) {
            match self.core.extend(&pending.lease, self.request.ttl, Bind::Keep).await {
                // Without an answer it is as good as it was, and that is checked below.
                Err(error) if !error.is_indeterminate() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        match pending.enter() {
            Ok(guard) => {
                if guard.took_over() {
                    self.core.telemetry.took_over(self.request.strategy.as_str());
                }
                tracing::debug!(target: "sprag::acquire", fence = %guard.fence(), "acquired");
                Ok(Some(guard))
            }
            Err(pending) => {
                self.leave(pending).await;
                Ok(None)
            }
        }
    }

    /// The lease is gone from the store. Start over, unless somebody took it away on purpose or
    /// this process is considered dead.
    fn place_lost(&self, pending: Pending, loss: Loss) -> Result<Option<LockGuard>> {
        pending.forget();
        match loss {
            Loss::Expired | Loss::StateLost if self.core.now() < self.deadline => Ok(None),
            loss => Err(Error::lost(loss).during(Operation::Acquire)),
        }
    }

    /// Whether it makes sense to wait, now that it is known for whom.
    fn may_wait(&mut self, contention: &Contention, last_chance: bool) -> Result<()> {
        let mine = |holder: &HolderView| {
            holder.party == self.party && self.core.registry.is_holding(holder.lease)
        };
        if waits_for_itself(self.request.mode, &contention.holders, mine) {
            let message = "this task holds it already and would wait for itself: release that \
                           guard first, or use own_party() if another future will release it";
            return Err(Error::new(ErrorKind::AlreadyHeldHere, Operation::Acquire, message));
        }
        if last_chance {
            return Err(self.give_up(ErrorKind::Timeout, contention));
        }
        if !self.contended {
            self.contended = true;
            self.core.telemetry.contended(self.request.mode);
        }
        Ok(())
    }

    /// Sleeps until there is a reason to ask again: a hint, the end of a lease, or time. A search
    /// for deadlocks is none.
    async fn pause(&mut self, lease: &Lease, contention: &Contention) -> Result<()> {
        let core = self.core;
        let _waiting = Waiting::new(core, self.request.mode);
        let started = core.now();
        let look = started.plus(self.next_look(started, contention));
        loop {
            let until = look.min(self.suspicion.due());
            let asks = tokio::select! {
                biased;
                () = lease.nudge.notified() => true,
                () = core.store.changed(&self.name, lease.id) => true,
                () = core.sleep(until.since(core.now())) => until == look,
            };
            self.suspicion.follow(core, lease).await?;
            if asks {
                break;
            }
        }
        self.looks = self.looks.saturating_add(1);
        Ok(())
    }

    fn next_look(&self, now: Moment, contention: &Contention) -> Duration {
        let jitter = 0.75 + 0.5 * self.core.entropy.next_fraction();
        let able = self.core.store.capability();
        let stands = able.notify && able.queue;
        let look = if !stands {
            let config = RetryConfig::default();
            let attempt = self.looks.saturating_add(1).min(config.max_attempts - 1);
            config.delay(attempt).unwrap_or(SELDOM)
        } else if contention.ahead <= NEXT {
            LOOK
        } else {
            SELDOM * u32::try_from(contention.ahead).unwrap_or(MOST_SELDOM).min(MOST_SELDOM)
        };
        let lease_ends = contention.holders.iter().filter_map(|holder| holder.remaining).min();
        // A moment after the end: on the dot, the store might still see it as held. In a queue it is
        // for the first ones to look, and the others follow one by one.
        let behind = if stands { u32::try_from(contention.ahead).unwrap_or(u32::MAX) } else { 0 };
        let later = STAGGER.saturating_mul(behind).saturating_add(Duration::from_millis(2));
        let lease_ends = lease_ends.map_or(Duration::MAX, |left| left.saturating_add(later));
        look.mul_f64(jitter).min(lease_ends).min(self.deadline.since(now))
    }

    /// Leaves no trace in the store; the keeper goes on trying if the store does not answer.
    async fn leave(&self, pending: Pending) {
        let request = self.core.store.release(&self.name, pending.lease.id);
        if self.core.request(Operation::Release, SELDOM, request).await.is_ok() {
            pending.forget();
        }
    }

    fn give_up(&self, kind: ErrorKind, contention: &Contention) -> Error {
        let waited = self.core.now().since(self.started);
        let mut message = match contention.holders.first() {
            Some(holder) => describe(holder),
            None => format!("{} are waiting for it already", contention.ahead),
        };
        if contention.holders.len() > 1 {
            message.push_str(&format!(" and {} more", contention.holders.len() - 1));
        }
        if kind == ErrorKind::Timeout {
            message.push_str(&format!("; gave up after {waited:.1?}"));
        }
        Error::new(kind, Operation::Acquire, message)
    }
}

fn split(answer: Attempt) -> (Contention, bool) {
    match answer {
        Attempt::Queued(contention) => (contention, true),
        Attempt::Held(contention) => (contention, false),
        Attempt::Granted(_) | Attempt::Gone(_) => (Contention::default(), false),
    }
}

fn describe(holder: &HolderView) -> String {
    let who = &holder.holder;
    let mut text = format!("held by {} on {}, fence {}", who.worker_id, who.node_id, holder.fence);
    if let Some(reason) = &who.reason {
        text.push_str(&format!(", to {reason:?}"));
    }
    if let Some(left) = holder.remaining {
        text.push_str(&format!(", lease good for {left:.1?}"));
    }
    text
}
