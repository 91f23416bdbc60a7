//! [`Report`]: what the workers believed and did.

use std::collections::BTreeMap;
use std::fmt;

/// Two workers who believed to hold the same issue at the same instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Double {
    /// The issue.
    pub issue: u64,
    /// The workers, the one that was there first first.
    pub workers: [usize; 2],
    /// Their fences.
    pub fences: [u64; 2],
}

/// What the workers believed and did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Everybody who believed to be alone and was not.
    pub doubles: Vec<Double>,
    /// The fences of each issue, in the order in which they were believed.
    pub fences: BTreeMap<u64, Vec<u64>>,
    /// How often the work on each issue was done to its end.
    pub done: BTreeMap<u64, u32>,
    /// How many claims there were, and how many of them were successful.
    pub claims: u64,
    /// See above.
    pub won: u64,
    /// How many workers were killed.
    pub kills: u64,
    /// How often work was not finished because the issue was lost meanwhile.
    pub lost: u64,
}

impl Report {
    /// Issues whose work was not done exactly once.
    pub fn not_once(&self) -> Vec<(u64, u32)> {
        let counts = self.done.iter().map(|(issue, count)| (*issue, *count));
        counts.filter(|(_, count)| *count != 1).collect()
    }

    /// Issues whose fences did not grow.
    pub fn fences_back(&self) -> Vec<u64> {
        let grows = |fences: &[u64]| fences.windows(2).all(|pair| pair[0] < pair[1]);
        let back = self.fences.iter().filter(|(_, fences)| !grows(fences));
        back.map(|(issue, _)| *issue).collect()
    }

    /// Everything that must never happen.
    ///
    /// # Panics
    ///
    /// If two believed to hold the same, fences went back, or work was not done exactly once.
    pub fn assert_safe(&self) {
        assert!(self.doubles.is_empty(), "two holders at once: {:?}\n{self}", self.doubles);
        let back = self.fences_back();
        assert!(back.is_empty(), "the fences of {back:?} went back: {:?}\n{self}", self.fences);
        let not_once = self.not_once();
        assert!(not_once.is_empty(), "not done exactly once: {not_once:?}\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doubles, done, claims, won, kills, lost, .. } = self;
        let issues = done.len();
        write!(
            f,
            "{won} of {claims} claims won, {kills} killed, {lost} lost, {} double holders, {} of \
             {issues} issues not done exactly once",
            doubles.len(),
            self.not_once().len()
        )
    }
}
