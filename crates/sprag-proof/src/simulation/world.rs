//! [`World`]: the store behind the network. The machine, its clock, and rules that the machine
//! has to keep whatever it is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sprag_core::audit::{self, audit_entries};
use sprag_core::clock::Clock;
use sprag_core::mailbox::Mailboxes;
use sprag_core::record::{Command, Context, EventKind, Expiry, Outcome, Record, apply};
use sprag_core::store::{Listing, Page};
use sprag_core::{Fence, LeaseId, LockName, LockView, Loss, SessionId};
use tokio::time::Instant;

use super::clock::SimClock;
use super::machine_rules::Before;
use super::network::{Line, WELL};

/// How long the world remembers what arrived; no request is under way for longer.
const MEMORY: Duration = Duration::from_secs(180);
/// How old a stale read may be, on the store's clock.
const STALE_MS: u64 = 4_000;
const MAX_WAITERS: usize = 64;

/// What the store knows of one lease.
#[derive(Debug)]
struct Trail {
    /// The latest request that arrived.
    sequence: u64,
    at: Instant,
    fate: Option<Loss>,
}

#[derive(Debug)]
pub(crate) struct World {
    clock: SimClock,
    records: BTreeMap<LockName, Record>,
    /// The records as they were some time ago.
    past: BTreeMap<LockName, Record>,
    past_ms: u64,
    dead: BTreeSet<SessionId>,
    connected: BTreeMap<SessionId, (Arc<Mailboxes>, Arc<Line>)>,
    trails: BTreeMap<LeaseId, Trail>,
    arrivals: u64,
    audit: audit::Trail,
    /// Who has to be woken because of what was done last.
    woken: Vec<(SessionId, LeaseId)>,
    broken: Option<String>,
}

impl World {
    pub(crate) fn new(clock: SimClock) -> Self {
        Self {
            clock,
            records: BTreeMap::new(),
            past: BTreeMap::new(),
            past_ms: 0,
            dead: BTreeSet::new(),
            connected: BTreeMap::new(),
            trails: BTreeMap::new(),
            arrivals: 0,
            audit: audit::Trail::default(),
            woken: Vec::new(),
            broken: None,
        }
    }

    // ---- sessions ---------------------------------------------------------------------------

    pub(crate) fn connect(
        &mut self,
        session: SessionId,
        mailboxes: &Arc<Mailboxes>,
        line: &Arc<Line>,
    ) {
        self.connected.insert(session, (Arc::clone(mailboxes), Arc::clone(line)));
    }

    /// The process is gone; the store does not know it yet.
    pub(crate) fn disconnect(&mut self, session: SessionId) {
        self.connected.remove(&session);
    }

    /// The store has found out that the process is gone.
    pub(crate) fn bury(&mut self, session: SessionId) {
        self.dead.insert(session);
        let names: Vec<_> = self.records.keys().cloned().collect();
        for name in names {
            self.run(&name, &Command::Reap);
        }
    }

    // ---- requests ---------------------------------------------------------------------------

    /// Takes note of a request. `false` if it was given up and is overtaken by a later one for
    /// the same lease: the contract says that it must not be done any more.
    pub(crate) fn arrive(&mut self, leases: &[LeaseId], sequence: u64, given_up: bool) -> bool {
        let later = |lease| self.trails.get(lease).is_some_and(|seen| seen.sequence > sequence);
        if given_up && leases.iter().any(later) {
            return false;
        }
        let now = Instant::now();
        for lease in leases {
            let trail =
                self.trails.entry(*lease).or_insert(Trail { sequence, at: now, fate: None });
            trail.sequence = trail.sequence.max(sequence);
            trail.at = now;
        }
        self.arrivals += 1;
        if self.arrivals.is_multiple_of(4096) {
            self.trails.retain(|_, trail| now.duration_since(trail.at) < MEMORY);
        }
        true
    }

    /// Applies a command, as the store does it: one at a time.
    pub(crate) fn run(&mut self, name: &LockName, command: &Command) -> Outcome {
        let now_ms = self.clock.now().as_millis();
        if now_ms - self.past_ms > STALE_MS {
            self.past_ms = now_ms;
            self.past.clone_from(&self.records);
        }
        let record = self.records.entry(name.clone()).or_default();
        let before = Before::look(record);
        let applied = in_context(now_ms, &self.dead, |context| {
            let applied = apply(std::mem::take(record), command, context);
            if let Err(broken) = before.check(&applied, command, context) {
                self.broken.get_or_insert(format!("{name}: {broken}"));
            }
            applied
        });
        self.audit.append(audit_entries(name, &applied, self.clock.unix_micros() / 1000));
        *record = applied.record;
        for event in &applied.events {
            if let Some(session) = event.session {
                self.woken.push((session, event.lease));
                if event.kind == EventKind::Gone(Loss::Expired)
                    && let Some(renewed_ms) = before.waiter_renewed_ms(event.lease)
                    && let Some((_, line)) = self.connected.get(&session)
                    && line.well_for() > Duration::from_millis(now_ms - renewed_ms) + WELL
                {
                    let broken = format!("{name}: a waiter expired whose process is well");
                    self.broken.get_or_insert(broken);
                }
            }
            if let (EventKind::Gone(loss), Some(trail)) =
                (&event.kind, self.trails.get_mut(&event.lease))
            {
                trail.fate = Some(loss.clone());
            }
        }
        applied.outcome
    }

    /// The record, and what the machine is told about the world, for the answers.
    pub(crate) fn with<T>(
        &self,
        name: &LockName,
        answer: impl FnOnce(&Record, &Context<'_>) -> T,
    ) -> T {
        let free = Record::default();
        let record = self.records.get(name).unwrap_or(&free);
        in_context(self.clock.now().as_millis(), &self.dead, |context| answer(record, context))
    }

    pub(crate) fn view(&self, name: &LockName, stale: bool) -> LockView {
        let (records, now_ms) = self.seen(stale);
        let free = Record::default();
        let record = records.get(name).unwrap_or(&free);
        in_context(now_ms, &self.dead, |context| record.view(name, context))
    }

    pub(crate) fn page(&self, listing: &Listing, stale: bool) -> Page {
        let (records, now_ms) = self.seen(stale);
        let wanted =
            |view: &LockView| view.is_contended() || (!listing.contended && view.is_locked());
        let locks = in_context(now_ms, &self.dead, |context| {
            let views = records.iter().map(|(name, record)| record.view(name, context));
            views.filter(wanted).collect()
        });
        Page { locks, next: None }
    }

    fn seen(&self, stale: bool) -> (&BTreeMap<LockName, Record>, u64) {
        if stale {
            (&self.past, self.past_ms)
        } else {
            (&self.records, self.clock.now().as_millis())
        }
    }

    /// Whom to wake, with the box to put the hint in. Who is gone is not woken.
    pub(crate) fn take_woken(&mut self) -> Vec<(Arc<Mailboxes>, LeaseId)> {
        let woken = std::mem::take(&mut self.woken);
        let box_of = |(session, lease)| Some((Arc::clone(&self.connected.get(&session)?.0), lease));
        woken.into_iter().filter_map(box_of).collect()
    }

    pub(crate) fn trail(&mut self) -> &mut audit::Trail {
        &mut self.audit
    }

    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    // ---- what the rules ask -----------------------------------------------------------------

    /// Why the lease ended, if it did a short while ago.
    pub(crate) fn fate(&self, lease: LeaseId) -> Option<Loss> {
        self.trails.get(&lease).and_then(|trail| trail.fate.clone())
    }

    /// Whether the store still knows of the lease: that it holds the lock, waits for it, or is gone.
    pub(crate) fn knows(&self, name: &LockName, lease: LeaseId) -> bool {
        let gone = |record: &Record| record.gone.iter().any(|gone| gone.lease == lease);
        self.is_in(name, lease) || self.records.get(name).is_some_and(gone)
    }

    /// Whether the lease holds the lock or waits for it.
    pub(crate) fn is_in(&self, name: &LockName, lease: LeaseId) -> bool {
        self.records.get(name).is_some_and(|record| {
            record.holders.iter().any(|hold| hold.lease == lease)
                || record.waiters.iter().any(|wait| wait.lease == lease)
        })
    }

    /// The fence with which the lease holds the lock in the store.
    pub(crate) fn fence_of(&self, name: &LockName, lease: LeaseId) -> Option<Fence> {
        let record = self.records.get(name)?;
        record.holders.iter().find(|hold| hold.lease == lease).map(|hold| hold.fence)
    }

    /// Whether the lease waits to be upgraded in the store.
    pub(crate) fn is_upgrading(&self, name: &LockName, lease: LeaseId) -> bool {
        let mut holders = self.records.get(name).into_iter().flat_map(|record| &record.holders);
        holders.any(|hold| hold.lease == lease && hold.upgrading)
    }

    /// What the store has of anybody whose name is `worker`, or of everybody.
    pub(crate) fn traces(&self, worker: Option<&str>) -> Vec<String> {
        let mut traces = Vec::new();
        for name in self.records.keys() {
            let view = self.view(name, false);
            let meant = |id: &str| worker.is_none_or(|worker| worker == id);
            let holders = view.holders.iter().map(|holder| &holder.holder.worker_id);
            let waiters = view.waiters.iter().map(|waiter| &waiter.holder.worker_id);
            traces.extend(holders.filter(|id| meant(id)).map(|id| format!("{id} holds {name}")));
            traces
                .extend(waiters.filter(|id| meant(id)).map(|id| format!("{id} waits for {name}")));
        }
        traces
    }

    /// What the store has of a session.
    pub(crate) fn traces_of_session(&self, session: SessionId) -> Vec<LockName> {
        let now_ms = self.clock.now().as_millis();
        let mine = |record: &Record| {
            let mut holds = record.holders.iter().filter(|hold| hold.expires_ms() > now_ms);
            let mut waits = record.waiters.iter().filter(|wait| wait.expires_ms() > now_ms);
            holds.any(|hold| hold.session == Some(session))
                || waits.any(|wait| wait.session == Some(session))
        };
        let names = self.records.iter().filter(|(_, record)| mine(record));
        names.map(|(name, _)| name.clone()).collect()
    }
}

fn in_context<T>(
    now_ms: u64,
    dead: &BTreeSet<SessionId>,
    run: impl FnOnce(&Context<'_>) -> T,
) -> T {
    let is_dead = |session| dead.contains(&session);
    let (expiry, fence_floor, max_waiters) = (Expiry::Clock, 0, MAX_WAITERS);
    run(&Context {
        now_ms,
        expiry,
        fence_floor,
        max_waiters,
        is_dead: &is_dead,
        is_silent: &|_| false,
    })
}
