//! What the processes of a crowd saw, and what can be said about it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// One time that a process was inside, in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Visit {
    /// Inside; first, so that visits sort by it.
    pub(crate) entered: u64,
    /// Asked for the lock.
    pub(crate) wanted: u64,
    /// Had done everything inside, and began to give the lock back.
    pub(crate) done: u64,
    /// Gave the lock back, and was told so.
    pub(crate) left: u64,
}

/// What one process of the crowd tells about one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) visits: Vec<Visit>,
    /// How long single requests to the store took, in microseconds.
    pub(crate) acquire_micros: Vec<u64>,
    pub(crate) release_micros: Vec<u64>,
}

/// One round of the whole crowd.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// When the gate was opened.
    pub(crate) started: u64,
    /// When the last process was told to stop; later visits do not count.
    pub(crate) stopped: u64,
    pub(crate) accounts: Vec<Account>,
}

impl Round {
    /// From the gate to the last release, in milliseconds.
    pub(crate) fn drain_ms(&self) -> f64 {
        let last = self.visits().map(|visit| visit.left).max().unwrap_or(u64::MAX);
        last.saturating_sub(self.started) as f64 / 1e6
    }

    /// How long somebody was inside, in milliseconds: the drain that no hand-over can beat.
    #[cfg(feature = "peers")]
    pub(crate) fn inside_ms(&self) -> f64 {
        let inside = self.visits().map(|visit| visit.done.saturating_sub(visit.entered));
        inside.sum::<u64>() as f64 / 1e6
    }

    /// Times that somebody entered, per second.
    pub(crate) fn handoffs_per_second(&self) -> f64 {
        self.counted().count() as f64 / self.seconds()
    }

    /// Times that somebody else than the one who had just left entered, per second.
    pub(crate) fn handoffs_to_another_per_second(&self) -> f64 {
        let mut order: Vec<(u64, usize)> = Vec::new();
        for (process, account) in self.accounts.iter().enumerate() {
            let counted = account.visits.iter().filter(|visit| visit.entered < self.stopped);
            order.extend(counted.map(|visit| (visit.entered, process)));
        }
        order.sort_unstable();
        let others = order.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        others as f64 / self.seconds()
    }

    /// How often the luckiest process entered, against the unluckiest.
    pub(crate) fn max_to_min(&self) -> f64 {
        let entered = |account: &Account| {
            account.visits.iter().filter(|visit| visit.entered < self.stopped).count()
        };
        let counts: BTreeSet<usize> = self.accounts.iter().map(entered).collect();
        let (min, max) = (counts.first().copied(), counts.last().copied());
        max.unwrap_or(0) as f64 / min.unwrap_or(0) as f64
    }

    /// The longest that anybody waited, in milliseconds.
    pub(crate) fn longest_wait_ms(&self) -> f64 {
        let waits = self.visits().map(|visit| visit.entered.saturating_sub(visit.wanted));
        waits.max().unwrap_or(0) as f64 / 1e6
    }

    /// Whether two processes were inside at once. The times are taken inside the lock, so this
    /// never says yes without a reason.
    pub(crate) fn overlapped(&self) -> bool {
        self.in_order().windows(2).any(|pair| pair[1].entered < pair[0].done)
    }

    /// How long nobody was inside between two visits, in microseconds.
    pub(crate) fn gaps_micros(&self) -> Vec<u64> {
        let gap = |pair: &[Visit]| pair[1].entered.saturating_sub(pair[0].done) / 1000;
        self.in_order().windows(2).map(gap).collect()
    }

    /// How often anybody entered.
    #[cfg(feature = "peers")]
    pub(crate) fn visits_in_all(&self) -> usize {
        self.visits().count()
    }

    fn in_order(&self) -> Vec<Visit> {
        let mut visits: Vec<Visit> = self.visits().copied().collect();
        visits.sort_unstable();
        visits
    }

    fn visits(&self) -> impl Iterator<Item = &Visit> {
        self.accounts.iter().flat_map(|account| &account.visits)
    }

    fn counted(&self) -> impl Iterator<Item = &Visit> {
        self.visits().filter(|visit| visit.entered < self.stopped)
    }

    fn seconds(&self) -> f64 {
        self.stopped.saturating_sub(self.started) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Round, Visit};

    const MS: u64 = 1_000_000;

    /// A round of two seconds from visits given as (wanted, entered) in milliseconds.
    fn round(processes: &[&[(u64, u64)]]) -> Round {
        let account = |visits: &&[(u64, u64)]| Account {
            visits: visits
                .iter()
                .map(|&(wanted, entered)| Visit {
                    entered: entered * MS,
                    wanted: wanted * MS,
                    done: (entered + 1) * MS,
                    left: (entered + 1) * MS,
                })
                .collect(),
            ..Account::default()
        };
        let accounts = processes.iter().map(account).collect();
        Round { started: 0, stopped: 2000 * MS, accounts }
    }

    #[test]
    fn a_fair_round_is_counted() {
        let round = round(&[&[(0, 0), (1, 3)], &[(0, 1), (3, 5)]]);
        assert_eq!(round.handoffs_per_second(), 2.0);
        assert_eq!(round.handoffs_to_another_per_second(), 1.5);
        assert_eq!(round.max_to_min(), 1.0);
        assert_eq!(round.longest_wait_ms(), 2.0);
        assert_eq!(round.drain_ms(), 6.0);
        assert_eq!(round.gaps_micros(), [0, 1000, 1000]);
        assert!(!round.overlapped());
    }

    #[test]
    fn who_enters_too_late_is_not_counted_but_has_waited() {
        let round = round(&[&[(0, 0)], &[(0, 2500)]]);
        assert_eq!(round.handoffs_per_second(), 0.5);
        assert!(round.max_to_min().is_infinite());
        assert_eq!(round.longest_wait_ms(), 2500.0);
    }

    #[test]
    fn two_inside_at_once_are_seen() {
        assert!(round(&[&[(0, 5)], &[(0, 5)]]).overlapped());
    }
}
