//! [`Floor`]: where the workers are, and who sees what all of them believe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};

use super::report::{Double, Report};
use super::{Claimer, Hold, Proof};
use crate::clock::SimClock;

/// How long a worker waits that got nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// Among how many of the oldest issues a worker chooses.
const OLDEST: usize = 4;

/// The work floor.
pub(super) struct Floor {
    clock: Arc<SimClock>,
    seed: u64,
    work: Duration,
    until: Moment,
    state: Mutex<State>,
}

/// A worker, and what it holds.
type Belief = (usize, Arc<dyn Hold>);

struct State {
    open: BTreeSet<u64>,
    /// Who believes to hold what, by issue.
    believed: BTreeMap<u64, Vec<Belief>>,
    report: Report,
    kills_left: u64,
    next_worker: usize,
}

impl Floor {
    pub(super) fn new(proof: &Proof, clock: Arc<SimClock>, issues: Vec<u64>) -> Self {
        let report =
            Report { done: issues.iter().map(|issue| (*issue, 0)).collect(), ..Report::default() };
        let state = State {
            open: issues.into_iter().collect(),
            believed: BTreeMap::new(),
            report,
            kills_left: proof.kills as u64,
            next_worker: proof.workers,
        };
        let until = clock.now().plus(proof.patience);
        Self { seed: proof.seed, work: proof.work, until, clock, state: Mutex::new(state) }
    }

    pub(super) fn report(self) -> Report {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).report
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One place on the floor: a worker, and who comes after it when it is killed.
    pub(super) fn attend(&self, first: usize, hire: impl Fn(usize) -> Box<dyn Claimer>) {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_mul(31) + first as u64);
        let mut number = first;
        let mut claimer = hire(number);
        while self.clock.now() < self.until {
            let Some(issue) = self.lock().choose(&mut random) else { break };
            let hold = claimer.claim(issue);
            self.lock().report.claims += 1;
            let Some(hold) = hold else {
                self.clock.wait(PAUSE.mul_f64(0.5 + random.f64()));
                continue;
            };
            let is_done = self.lock().enter(number, issue, &hold);
            if !is_done {
                self.clock.wait(self.work.mul_f64(0.5 + random.f64()));
            }
            if !is_done && self.lock().kill(number, issue, &mut random) {
                claimer.kill();
                number = self.lock().hire();
                claimer = hire(number);
                continue;
            }
            self.lock().leave(number, issue, &hold, is_done);
            claimer.release(issue);
        }
    }
}

impl State {
    /// One of the oldest that are not done: everybody wants those.
    fn choose(&self, random: &mut fastrand::Rng) -> Option<u64> {
        random.choice(self.open.iter().take(OLDEST)).copied()
    }

    /// Somebody believes to hold an issue. Says whether its work was done meanwhile.
    fn enter(&mut self, worker: usize, issue: u64, hold: &Arc<dyn Hold>) -> bool {
        self.report.won += 1;
        if !hold.is_valid() {
            return true;
        }
        self.report.fences.entry(issue).or_default().push(hold.fence());
        let others = self.believed.entry(issue).or_default();
        for (other, theirs) in others.iter().filter(|(_, theirs)| theirs.is_valid()) {
            self.report.doubles.push(Double {
                issue,
                workers: [*other, worker],
                fences: [theirs.fence(), hold.fence()],
            });
        }
        others.push((worker, Arc::clone(hold)));
        !self.open.contains(&issue)
    }

    /// The work is over: it counts if the issue is believed to be held still.
    fn leave(&mut self, worker: usize, issue: u64, hold: &Arc<dyn Hold>, is_done: bool) {
        if !is_done && hold.is_valid() {
            *self.report.done.entry(issue).or_default() += 1;
            self.open.remove(&issue);
        } else if !is_done {
            self.report.lost += 1;
        }
        self.forget(worker, issue);
    }

    /// Decides whether a worker dies in the middle of its work. All who are to die do so before
    /// the work is out.
    fn kill(&mut self, worker: usize, issue: u64, random: &mut fastrand::Rng) -> bool {
        let is_late = self.open.len() as u64 <= self.kills_left;
        let dies = self.kills_left > 0 && (is_late || random.u8(..4) == 0);
        if dies {
            self.kills_left -= 1;
            self.report.kills += 1;
            self.forget(worker, issue);
        }
        dies
    }

    fn hire(&mut self) -> usize {
        self.next_worker += 1;
        self.next_worker - 1
    }

    fn forget(&mut self, worker: usize, issue: u64) {
        if let Some(believed) = self.believed.get_mut(&issue) {
            believed.retain(|(other, _)| *other != worker);
        }
    }
}
