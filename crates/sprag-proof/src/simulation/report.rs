//! [`Report`] and [`Failure`]: what a run tells.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Plan;
use super::journal::Journal;

/// A run in which every rule was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was run.
    pub plan: Plan,
    /// How many things happened.
    pub events: u64,
    /// All that happened, in one number: equal for two runs of one seed.
    pub hash: u64,
    /// How many times each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// What is counted as a fault; the rest of the counts is what the workers did.
const FAULTS: &[&str] = &[
    "request lost",
    "request lost in outage",
    "request lost in partition",
    "reply lost",
    "reply lost in partition",
    "request or reply is slow",
    "request done twice",
    "acquire done twice",
    "overtaken request dropped",
    "request waits in stall",
    "hint lost",
    "hint late",
    "needless hint",
    "stale read",
    "store out of reach",
    "store stalls",
    "cut off",
    "paused",
    "crashed",
];

impl Report {
    pub(crate) fn new(plan: Plan, journal: &Journal) -> Self {
        let (events, hash) = (journal.entries(), journal.hash());
        Self { plan, events, hash, counts: journal.counts() }
    }

    /// How often the named thing happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// The faults by kind, and how often each happened.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAULTS.iter().map(|fault| (*fault, self.count(fault)))
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.plan.hours += other.plan.hours;
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults().map(|(_, count)| count).sum();
        let (hours, events) = (self.plan.hours, self.events);
        writeln!(f, "{hours} simulated hours, {events} events, {faults} faults, no rule broken")?;
        let is_fault = |what: &str| FAULTS.contains(&what);
        for (title, wanted) in [("faults", true), ("work", false)] {
            writeln!(f, "  {title}:")?;
            for (what, count) in self.counts.iter().filter(|(what, _)| is_fault(what) == wanted) {
                writeln!(f, "    {count:>10}  {what}")?;
            }
        }
        Ok(())
    }
}

/// A run in which a rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run; run it again to see it again.
    pub plan: Plan,
    /// The rule, and what broke it.
    pub broken: String,
    /// When, in simulated time.
    pub at: Duration,
    /// What happened before.
    pub timeline: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, hours } = self.plan;
        writeln!(f, "seed {seed}, after {:.3} simulated seconds:", self.at.as_secs_f64())?;
        writeln!(f, "{}\n", self.broken)?;
        writeln!(f, "What happened before:\n{}", self.timeline)?;
        writeln!(f, "To see it again: cargo xtask sim --seed {seed} --hours {hours}")
    }
}
