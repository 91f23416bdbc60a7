//! Real processes under real faults: many takers, a nemesis, and a judge in the end.
//!
//! ```text
//!   takers that churn ──> history.jsonl ──> settle: final look, checks C1 to C9 ──> Report
//!      ^ SIGKILL, SIGSTOP, SIGTERM, restart
//!   nemesis (seeded), then a phase without faults in which everybody must be served
//! ```

mod judge;
mod nemesis;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use sprag_core::Result;

pub use judge::{Judgement, settle};
pub use report::Report;

use crate::history::{Recorder, Rules};
use crate::process::{Churn, TakerConfig};
use crate::support::{let_time_pass, now};
use nemesis::Nemesis;

/// What to do to a store.
#[derive(Clone, Debug)]
pub struct Torture {
    /// The program `sprag-taker`, or one that behaves like it.
    pub program: PathBuf,
    /// What comes before the store's URL in its arguments.
    pub arguments: Vec<String>,
    /// The store. It must be empty and nobody else's.
    pub url: String,
    /// Where the history and the guarded files go.
    pub folder: PathBuf,
    /// How many processes there are at any time.
    pub processes: usize,
    /// How many locks they fight over.
    pub locks: usize,
    /// The length of their leases.
    pub ttl: Duration,
    /// For how long faults happen.
    pub length: Duration,
    /// Chooses the faults. The same seed is the same plan, not the same run: the operating system
    /// decides when each process runs.
    pub seed: u64,
}

impl Torture {
    /// Where the history is written.
    pub fn history(&self) -> PathBuf {
        self.folder.join("history.jsonl")
    }

    fn churn(&self) -> Churn {
        Churn {
            locks: self.locks,
            folder: self.folder.clone(),
            ttl: self.ttl,
            checked: true,
            seed: self.seed,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened.
    ///
    /// # Panics
    ///
    /// If a process cannot be started or does not end.
    pub async fn run(&self) -> Result<Report> {
        let store = sprag::open(&self.url)?;
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let config = TakerConfig::new(&self.program, &self.url).arguments(&arguments);
        let config = config.history(self.history()).churn(self.churn());
        let mut nemesis = Nemesis::start(config, self).await;
        let started = now();
        while now().since(started) < self.length {
            nemesis.strike().await;
        }
        nemesis.relent().await;
        let healed = Recorder::now_ns();
        // Long enough for every lease of the dead to end, and for everybody to be served after.
        let calm = self.ttl * 2 + Duration::from_secs(1);
        let_time_pass(calm).await;
        let aftermath = nemesis.end().await;
        let rules = Rules {
            healed_at_ns: Some(healed),
            grant_within: Duration::from_secs(10).max(self.ttl * 2),
            // A process that was stopped cannot tell its loss in time; it is asked afterwards.
            lost_slack: None,
            killed: aftermath.killed,
            ..Rules::default()
        };
        let judgement = settle(&store, &self.churn(), &self.history(), &rules).await;
        Ok(Report {
            seed: self.seed,
            tally: aftermath.tally,
            grants: judgement.grants,
            faults: aftermath.faults,
            violations: judgement.found.into_iter().chain(aftermath.complaints).collect(),
        })
    }
}
