//! [`Worker`]: takes locks in all ways there are, and looks closely at what it is told.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use sprag_core::{
    Client, Error, ErrorKind, Holder, LockGuard, LockRequest, Loss, Mode, PartyId, Released,
    Strategy,
};
use tokio::time::{Instant, sleep};

use super::clock::SimClock;
use super::dice::Dice;
use super::journal::Who;
use super::network::{Connection, WELL};
use super::oracle::Held;
use super::sim::{Kind, Sim};

/// The permits of the semaphore.
const PERMITS: u32 = 3;
/// How late a loss may be told: timers have a resolution, and the clocks drift while they run.
const TOLERANCE: Duration = Duration::from_millis(20);

pub(crate) struct Worker {
    pub(super) sim: Arc<Sim>,
    pub(super) who: Who,
    pub(super) connection: Arc<Connection>,
    pub(super) client: Client,
    pub(super) clock: Arc<SimClock>,
    pub(super) dice: Dice,
    pub(super) party: PartyId,
    name: String,
    /// When the last lock was given back.
    idle_since: Instant,
}

/// How a lock is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) renewed: bool,
    pub(super) max_hold: Option<Duration>,
}

impl Worker {
    pub(crate) fn new(
        who: Who,
        connection: &Arc<Connection>,
        client: Client,
        clock: &Arc<SimClock>,
        mut dice: Dice,
    ) -> Self {
        Self {
            sim: Arc::clone(&connection.sim),
            who,
            connection: Arc::clone(connection),
            client,
            clock: Arc::clone(clock),
            party: PartyId::from_u128(dice.id()),
            dice,
            name: who.to_string(),
            idle_since: Instant::now(),
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            let thinking = self.dice.time(1, self.sim.think_ms());
            tokio::select! {
                biased;
                () = self.sim.calm.wait() => return,
                () = self.connection.line().over.wait() => return,
                () = sleep(thinking) => {}
            }
            self.nothing_is_left();
            match self.dice.number(0, 99) {
                0..=69 => self.one_lock().await,
                70..=79 => self.several_locks().await,
                80..=86 => self.send_ticket().await,
                87..=94 => self.receive_ticket().await,
                _ => self.look_around().await,
            }
            self.idle_since = Instant::now();
        }
    }

    pub(super) fn note(&self, what: &'static str, lock: usize, number: u64) {
        self.sim.note(self.who, what, Some(lock), number);
    }

    pub(super) fn fail(&self, lock: usize, what: &str) {
        let name = &self.sim.setting.locks[lock].name;
        self.sim.fail(format!("{} on {name}: {what}", self.who));
    }

    /// A worker that holds and wants nothing has left no trace in the store.
    fn nothing_is_left(&self) {
        let idle = self.idle_since.elapsed();
        if idle < Duration::from_secs(1) || self.connection.line().well_for() < idle + WELL {
            return;
        }
        let traces = self.sim.world().traces(Some(&self.name));
        if !traces.is_empty() {
            let traces = traces.join(", ");
            self.sim.fail(format!("left behind by a worker that wants nothing: {traces}"));
        }
    }

    // ---- asking -----------------------------------------------------------------------------

    pub(super) fn wish(&mut self, lock: usize) -> Wish {
        let dice = &mut self.dice;
        let mode = match self.sim.setting.locks[lock].kind {
            Kind::Mutex => Mode::Exclusive,
            Kind::ReadWrite => dice.pick(&[Mode::Shared, Mode::Upgradable, Mode::Exclusive]),
            Kind::Semaphore => {
                Mode::Permits { count: if dice.chance(300) { 2 } else { 1 }, of: PERMITS }
            }
        };
        Wish {
            lock,
            mode,
            ttl: dice.time(500, 30_000),
            renewed: !dice.chance(200),
            max_hold: dice.chance(100).then(|| dice.time(500, 20_000)),
        }
    }

    pub(super) fn holder(&self) -> Holder {
        Holder::new(self.name.clone(), "simulation")
    }

    pub(super) fn request(&mut self, wish: Wish) -> LockRequest {
        let mut request = self
            .client
            .lock(&self.sim.setting.locks[wish.lock].name)
            .mode(wish.mode)
            .ttl(wish.ttl)
            .holder(self.holder())
            .party(self.party);
        if !wish.renewed {
            request = request.no_renewal();
        }
        if let Some(limit) = wish.max_hold {
            request = request.max_hold(limit);
        }
        if self.dice.chance(100) {
            request = request.priority(self.dice.pick(&[-3, -1, 1, 3]));
        }
        if self.sim.setting.rough && self.dice.chance(100) {
            request = request.strategy(match self.dice.number(0, 2) {
                0 => Strategy::ForceAcquire,
                _ => Strategy::StealStale { after: self.dice.time(200, 10_000) },
            });
        }
        match self.dice.number(0, 9) {
            0 => request.wait_forever(),
            1 | 2 => request.no_wait(),
            _ => request.wait(self.dice.time(50, 60_000)),
        }
    }

    /// Acquires one lock, or gives up half-way.
    pub(super) async fn acquire(
        &mut self,
        wish: Wish,
        request: LockRequest,
        holding: bool,
    ) -> Option<Arc<Held>> {
        self.note("asks", wish.lock, 0);
        let patience =
            if self.dice.chance(200) { self.dice.time(1, 20_000) } else { Duration::MAX };
        let acquired = tokio::select! {
            biased;
            acquired = request.acquire() => acquired,
            () = sleep(patience) => {
                self.note("cancelled", wish.lock, 0);
                return None;
            }
        };
        match acquired {
            Ok(guard) => Some(self.entered(wish.lock, guard)),
            Err(error) => {
                self.refused(wish.lock, &error, holding);
                None
            }
        }
    }

    /// Checks that an acquire may fail as it did. Whoever holds nothing is in no deadlock. Where
    /// all take their locks in order there is none either, but a release that did not get through
    /// yet can look like one.
    pub(super) fn refused(&mut self, lock: usize, error: &Error, holding: bool) {
        let rough = self.sim.setting.rough;
        let (what, fine) = match error.kind() {
            ErrorKind::Held => ("held", true),
            ErrorKind::Timeout => ("timed out", true),
            ErrorKind::Unavailable => {
                ("store does not answer", self.connection.line().well_for() < WELL)
            }
            ErrorKind::Deadlock => ("deadlock", holding),
            ErrorKind::ShutDown => ("shut down", self.connection.line().over.is_raised()),
            ErrorKind::Lost(Loss::Expired | Loss::StateLost) => ("place lost", true),
            ErrorKind::Lost(Loss::Stolen { .. } | Loss::Broken { .. }) => ("place taken", rough),
            _ => ("refused", false),
        };
        self.note(what, lock, 0);
        if !fine {
            self.fail(lock, &format!("acquire must not fail with: {error}"));
        }
    }

    pub(super) fn entered(&self, lock: usize, guard: LockGuard) -> Arc<Held> {
        self.note("holds", lock, guard.fence().get());
        let name = guard.name().clone();
        let (lease, fence) = (guard.lease(), guard.fence());
        let stored = self.sim.world().fence_of(&name, lease);
        if stored.is_some_and(|stored| stored != fence) {
            self.fail(lock, &format!("the guard has fence {fence}, the store {stored:?}"));
        }
        let held = Held::new(self.who, lock, &self.clock, guard);
        let entered = self.sim.oracle().entered(&held, self.sim.setting.rough);
        if let Err(broken) = entered {
            self.fail(lock, &broken);
        }
        self.check_exclusion(lock);
        held
    }

    /// As [`Worker::entered`], for a guard that stays where it is.
    pub(super) fn entered_as(&self, lock: usize, guard: &LockGuard) -> Arc<Held> {
        let held = Held::shadow(self.who, lock, &self.clock, guard);
        // A shadow tells no fence, so there is nothing to be wrong but what others believe.
        drop(self.sim.oracle().entered(&held, self.sim.setting.rough));
        self.check_exclusion(lock);
        held
    }

    pub(super) fn check_exclusion(&self, lock: usize) {
        if !self.sim.setting.rough
            && let Err(broken) = self.sim.oracle().exclusion(lock)
        {
            self.fail(lock, &broken);
        }
    }

    // ---- holding ----------------------------------------------------------------------------

    /// Holds the lock for a while and keeps asking about it; `false` once it is lost.
    pub(super) async fn hold(&mut self, held: &Arc<Held>, wish: Wish, length: Duration) -> bool {
        let end = Instant::now() + length;
        let listening = self.clock.now();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let step = self.dice.time(5, 5_000).min(left);
            let lost = held.lost();
            tokio::select! {
                biased;
                loss = lost => {
                    self.told_in_time(held, listening);
                    self.told(held, wish, &loss);
                    return false;
                }
                () = sleep(step) => {}
            }
            if !self.still_valid(held, wish) {
                return false;
            }
            if Instant::now() >= end {
                return true;
            }
        }
    }

    /// Asks the guard. It may say yes only before its deadline, and only if nobody else does.
    pub(super) fn still_valid(&self, held: &Held, wish: Wish) -> bool {
        let lock = held.lock;
        let answer = held.ask(|guard| (guard.ensure_valid(), guard.valid_until()));
        let Some((answer, until)) = answer else { return false };
        match answer {
            Ok(()) if self.clock.now() >= until => {
                self.fail(lock, "the guard says valid after its deadline");
                false
            }
            Ok(()) => {
                if let Err(broken) = held.fence_only_grows() {
                    self.fail(lock, &broken);
                }
                self.check_exclusion(lock);
                self.no_wish_is_left(held);
                true
            }
            Err(error) => {
                if let Some(loss) = error.loss() {
                    self.told(held, wish, loss);
                }
                false
            }
        }
    }

    /// An upgrade that was given up keeps no reader out, once everything has been well.
    fn no_wish_is_left(&self, held: &Held) {
        let name = &self.sim.setting.locks[held.lock].name;
        if held.gave_up_upgrading_for() > WELL
            && self.connection.line().well_for() > WELL
            && self.sim.world().is_upgrading(name, held.lease)
        {
            self.fail(held.lock, "waits for an upgrade in the store that was given up");
        }
    }

    /// Checks that the loss was told no later than at the deadline, to somebody who listened.
    fn told_in_time(&self, held: &Held, listening: Moment) {
        let Some(until) = held.ask(LockGuard::valid_until) else { return };
        let late = self.clock.now().since(until.max(listening));
        // While it was paused nobody could tell it anything.
        if late > TOLERANCE && self.connection.line().running_for() > late + TOLERANCE {
            self.fail(held.lock, &format!("the loss was told {late:?} after the deadline"));
        }
    }

    /// The guard is lost. Checks that there was a reason.
    fn told(&self, held: &Held, wish: Wish, loss: &Loss) {
        let lock = held.lock;
        self.note(loss.as_str(), lock, 0);
        let Some(until) = held.ask(LockGuard::valid_until) else { return };
        let now = self.clock.now();
        let line = self.connection.line();
        // It may have ended long ago, in a bad time, and be looked at only now.
        let well = wish.renewed && line.well_for() > now.since(until) + wish.ttl + WELL;
        let rough = self.sim.setting.rough;
        let plausible = match loss {
            Loss::Expired | Loss::Unreachable => now >= until && !well,
            Loss::Stolen { .. } | Loss::Broken { .. } => rough,
            Loss::MaxHold => wish.max_hold.is_some(),
            Loss::ShutDown => line.over.is_raised(),
            // The store forgets why after a while.
            Loss::StateLost => !well || rough,
            _ => false,
        };
        if !plausible {
            self.fail(lock, &format!("lost without a reason: {loss}"));
        }
    }

    // ---- giving back ------------------------------------------------------------------------

    /// Gives the lock back, in one way or another, and checks what it is told.
    pub(super) async fn give_back(&mut self, held: &Held, wish: Wish) {
        let Some(guard) = held.give_back() else { return };
        if self.dice.chance(250) {
            self.note("drops", held.lock, 0);
            drop(guard);
            return;
        }
        let valid = guard.is_valid();
        let (name, lease) = (guard.name().clone(), guard.lease());
        let patience = if self.dice.chance(50) { self.dice.time(1, 3_000) } else { Duration::MAX };
        let released = tokio::select! {
            biased;
            released = guard.release() => released,
            () = sleep(patience) => return self.note("release cancelled", held.lock, 0),
        };
        let world = self.sim.world();
        let (kept, fate) = (world.fence_of(&name, lease), world.fate(lease));
        drop(world);
        let well = self.connection.line().well_for() > wish.ttl + WELL;
        let problem = match &released {
            Ok(_) if kept.is_some() => Some("released, and still held in the store".to_owned()),
            Ok(Released::Freed) if fate != Some(Loss::Released) => {
                Some(format!("told that it was held to the end, but: {fate:?}"))
            }
            Ok(Released::AlreadyLost(loss)) if valid && well && !self.sim.setting.rough => {
                Some(format!("told that it was lost without a reason: {loss}"))
            }
            Err(error) if well => Some(format!("not released without a reason: {error}")),
            _ => None,
        };
        self.note(if released.is_ok() { "released" } else { "not released" }, held.lock, 0);
        if let Some(problem) = problem {
            self.fail(held.lock, &problem);
        }
    }
}
