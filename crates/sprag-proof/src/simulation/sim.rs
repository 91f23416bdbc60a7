//! [`Sim`]: what all parts of one simulation share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::mailbox::Mailboxes;
use sprag_core::{Capability, LeaseId, Level, LockName, Ticket};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::clock::SimClock;
use super::dice::Dice;
use super::journal::{Journal, Who};
use super::oracle::Oracle;
use super::weather::Weather;
use super::world::World;
use super::{Failure, Plan, Report};

/// How long the tempo stays the same.
const TURN_SECONDS: u64 = 600;

/// What the seed says about this run.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) processes: usize,
    pub(crate) workers: usize,
    /// Whether locks are stolen and broken. Then two may believe to hold one, by request, and
    /// only the fences tell them apart.
    pub(crate) rough: bool,
    /// Whether locks are also taken out of order. Then, and only then, there are deadlocks.
    pub(crate) disorder: bool,
    /// What the tempo is drawn from.
    tempo: u64,
    pub(crate) locks: Vec<Lock>,
}

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    ReadWrite,
    Semaphore,
}

impl Setting {
    fn draw(dice: &mut Dice) -> Self {
        let kinds = [
            ("mutex-1", Kind::Mutex),
            ("mutex-2", Kind::Mutex),
            ("rwlock", Kind::ReadWrite),
            ("semaphore", Kind::Semaphore),
        ];
        let lock = |(name, kind)| Lock { name: LockName::new(name).expect("a good name"), kind };
        let processes = dice.index(3) + 2;
        Self {
            processes,
            workers: dice.index(if processes == 4 { 2 } else { 3 }) + 1,
            rough: dice.chance(250),
            disorder: dice.chance(250),
            tempo: dice.number(0, u64::MAX / 2),
            locks: kinds.into_iter().map(lock).collect(),
        }
    }
}

pub(crate) struct Sim {
    pub(crate) setting: Setting,
    pub(crate) capability: Capability,
    start: Instant,
    dice: Mutex<Dice>,
    world: Mutex<World>,
    weather: Mutex<Weather>,
    journal: Mutex<Journal>,
    oracle: Mutex<Oracle>,
    /// Tickets on their way from one process to another.
    post: Mutex<Vec<Ticket>>,
    sequence: AtomicU64,
    failure: Mutex<Option<String>>,
    failed: Notify,
    /// The faults are over.
    pub(crate) calm: Signal,
    /// Somebody is busy without end, and so time does not go on.
    standstill: Arc<Signal>,
}

/// Something that happens once; who waits for it is told.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: AtomicBool,
    told: Notify,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        let told = self.told.notified();
        if !self.is_raised() {
            told.await;
        }
    }
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let mut dice = Dice::new(seed);
        let start = Instant::now();
        let setting = Setting::draw(&mut dice);
        let standstill = Arc::new(Signal::default());
        let world = World::new(SimClock::new(start, &mut dice, &standstill));
        let weather = Weather::new(dice.fork());
        let oracle = Oracle::new(setting.locks.len());
        let mut capability = Capability::full("simulation", Level::Fenced);
        capability.eviction_hints = false;
        Arc::new(Self {
            setting,
            capability,
            start,
            dice: Mutex::new(dice),
            world: Mutex::new(world),
            weather: Mutex::new(weather),
            journal: Mutex::new(Journal::new()),
            oracle: Mutex::new(oracle),
            post: Mutex::default(),
            sequence: AtomicU64::new(1),
            failure: Mutex::default(),
            failed: Notify::new(),
            calm: Signal::default(),
            standstill,
        })
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    pub(crate) fn weather(&self) -> MutexGuard<'_, Weather> {
        lock(&self.weather)
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        lock(&self.oracle)
    }

    pub(crate) fn post(&self) -> MutexGuard<'_, Vec<Ticket>> {
        lock(&self.post)
    }

    /// Dice of their own for a part of the simulation.
    pub(crate) fn dice(&self) -> Dice {
        lock(&self.dice).fork()
    }

    pub(crate) fn clock(&self, dice: &mut Dice) -> SimClock {
        SimClock::new(self.start, dice, &self.standstill)
    }

    /// How long a worker thinks between two locks at most. Crowded times and quiet ones take
    /// turns, as in life; a run begins with a crowd, so that short runs see much.
    pub(crate) fn think_ms(&self) -> u64 {
        let turn = self.start.elapsed().as_secs() / TURN_SECONDS;
        if turn < 2 {
            return 2_000;
        }
        match Dice::new(self.setting.tempo + turn).number(0, 19) {
            0 => 2_000,
            1..=3 => 30_000,
            _ => 900_000,
        }
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn calm_down(&self) {
        self.note(Who::STORE, "no more faults", None, 0);
        self.weather().calm_down();
        self.calm.raise();
    }

    /// Whether the faults are over and everybody is to come to an end.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.is_raised()
    }

    pub(crate) fn note(&self, who: Who, what: &'static str, on: Option<usize>, number: u64) {
        lock(&self.journal).note(self.start.elapsed(), who, what, on, number);
    }

    pub(crate) fn stale_read(&self, who: Who) -> bool {
        let stale = self.weather().stale_read();
        if stale {
            self.note(who, "stale read", None, 0);
        }
        stale
    }

    /// Delivers a hint, or not.
    pub(crate) fn hint(&self, mailboxes: Arc<Mailboxes>, lease: LeaseId) {
        let when = self.weather().hint();
        match when {
            None => self.note(Who::STORE, "hint lost", None, 0),
            Some(Duration::ZERO) => mailboxes.notify(lease),
            Some(delay) => {
                self.note(Who::STORE, "hint late", None, 0);
                tokio::spawn(async move {
                    sleep(delay).await;
                    mailboxes.notify(lease);
                });
            }
        }
    }

    /// A rule is broken. The first one counts.
    pub(crate) fn fail(&self, what: String) {
        lock(&self.failure).get_or_insert(what);
        self.failed.notify_one();
    }

    pub(crate) async fn failed(&self) {
        tokio::select! {
            biased;
            () = self.failed.notified() => {}
            () = self.standstill.wait() => {
                self.fail("somebody is busy without end: time stands still".into());
            }
        }
    }

    pub(crate) fn report(&self, plan: Plan) -> Result<Report, Box<Failure>> {
        let journal = lock(&self.journal);
        match lock(&self.failure).take() {
            None => Ok(Report::new(plan, &journal)),
            Some(broken) => {
                let names: Vec<_> =
                    self.setting.locks.iter().map(|lock| lock.name.to_string()).collect();
                let at = self.start.elapsed();
                Err(Box::new(Failure { plan, broken, at, timeline: journal.timeline(&names) }))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
