//! The proof harness: many workers, one queue of issues, and everything going wrong.
//!
//! A way to claim issues is a [`Claimer`]. [`Proof::run`] lets many of them work through a queue
//! on a [`Simulator`] whose reads are behind and whose answers get lost, kills some of them, and
//! says in a [`Report`] what each of them believed.

mod floor;
mod report;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::SimClock;
use crate::faults::FaultPlan;
use crate::limits::Limits;
use crate::simulator::{Setup, Simulator};
use crate::world::Permission;
use floor::Floor;

pub use report::{Double, Report};

/// The repository of the queue.
const REPO: &str = "octocat/queue";

/// A way to claim issues, in the hands of one worker.
pub trait Claimer: Send {
    /// Tries to get an issue; `None` if somebody else has it, or nothing is known.
    fn claim(&mut self, issue: u64) -> Option<Arc<dyn Hold>>;

    /// Gives an issue back. It is no longer believed to be held from before this is called.
    fn release(&mut self, issue: u64);

    /// Ends as a process does that is killed: nothing is given back, and no sign of life is given
    /// any more.
    fn kill(self: Box<Self>);
}

/// What a worker believes to hold.
pub trait Hold: Send + Sync {
    /// The fence it got.
    fn fence(&self) -> u64;

    /// Whether it believes so still.
    fn is_valid(&self) -> bool;
}

/// Who a [`Claimer`] is to be.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Its number; nobody else ever has it, not even who comes after a killed one.
    pub number: usize,
    /// Its account.
    pub login: String,
    /// The account's token.
    pub token: String,
    /// Where GitHub is.
    pub url: String,
    /// The repository, as `owner/name`.
    pub repo: &'static str,
    /// The time everybody lives in.
    pub clock: Arc<SimClock>,
}

/// How many of everything, and how much goes wrong.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Decides about faults, lag, kills and who takes which issue.
    pub seed: u64,
    /// How many work at the same time.
    pub workers: usize,
    /// How many accounts they share.
    pub accounts: usize,
    /// How many issues there are.
    pub issues: usize,
    /// How many workers are killed while they hold something.
    pub kills: usize,
    /// How much reads are behind at most.
    pub lag: Duration,
    /// How many of the writes get lost, or their answers do.
    pub ambiguous: f64,
    /// How long the work on one issue takes.
    pub work: Duration,
    /// How much faster than real time all of this goes.
    pub speed: u32,
    /// When it is given up.
    pub patience: Duration,
}

impl Proof {
    /// Small enough for every run of the tests.
    pub const SMALL: Self = Self {
        seed: 1,
        workers: 12,
        accounts: 1,
        issues: 24,
        kills: 3,
        lag: Duration::from_secs(10),
        ambiguous: 0.05,
        work: Duration::from_secs(3),
        speed: 30,
        patience: Duration::from_secs(40 * 60),
    };

    /// As many as a team has.
    pub const FULL: Self = Self { workers: 40, issues: 200, kills: 10, ..Self::SMALL };

    /// The full size with `SPRAG_TORTURE=full`, else the small one.
    pub fn sized() -> Self {
        let full = std::env::var("SPRAG_TORTURE").is_ok_and(|size| size == "full");
        if full { Self::FULL } else { Self::SMALL }
    }

    /// Lets all of them work until everything is done, or patience ends.
    pub fn run(&self, hire: impl Fn(Worker) -> Box<dyn Claimer> + Sync) -> Report {
        let github = Setup::new(self.seed).speed(self.speed).start();
        let issues = self.furnish(&github);
        github.lag(self.lag);
        github.faults(FaultPlan::ambiguous(self.ambiguous));
        let worker = |number: usize| {
            let login = format!("worker{}", number % self.accounts.max(1));
            Worker {
                number,
                token: format!("{login}-token"),
                login,
                url: github.url().to_owned(),
                repo: REPO,
                clock: github.clock(),
            }
        };
        let floor = Floor::new(self, github.clock(), issues);
        std::thread::scope(|scope| {
            for number in 0..self.workers {
                let (floor, worker, hire) = (&floor, &worker, &hire);
                scope.spawn(move || floor.attend(number, |number| hire(worker(number))));
            }
        });
        floor.report()
    }

    fn furnish(&self, github: &Simulator) -> Vec<u64> {
        github.limits(Limits::GENEROUS);
        github.add_repo(REPO);
        for account in 0..self.accounts.max(1) {
            let login = format!("worker{account}");
            github.add_token(&format!("{login}-token"), &login);
            github.add_collaborator(REPO, &login, Permission::Write);
        }
        (0..self.issues).map(|number| github.add_issue(REPO, &format!("job {number}"))).collect()
    }
}
