//! [`Report`]: what a run of torture did and found.

use std::collections::BTreeMap;
use std::fmt;

use crate::process::Tally;

/// What a run did and found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of its faults.
    pub seed: u64,
    /// Grants in the history of all processes.
    pub grants: u64,
    /// What those processes did that ended in order.
    pub tally: Tally,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Violations with their timelines, and processes that did not behave.
    pub violations: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "{} grants, {faults} faults, seed {}", self.grants, self.seed)?;
        for (kind, count) in &self.faults {
            writeln!(f, "{count:>8} {kind}")?;
        }
        let Tally { lost, rejected, failed, .. } = &self.tally;
        writeln!(f, "of the processes that lived to tell:")?;
        writeln!(f, "{lost:>8} locks lost\n{rejected:>8} late writes refused")?;
        for (kind, count) in failed {
            writeln!(f, "{count:>8} requests without a grant: {kind}")?;
        }
        match self.violations.len() {
            0 => write!(f, "no violation"),
            count => write!(f, "{count} violations:\n{}", self.violations.join("\n")),
        }
    }
}
