//! [`Strategy`]: what to do when somebody else holds the lock.

use std::fmt;
use std::time::Duration;

use crate::store::Takeover;

/// What to do when somebody else holds the lock.
///
/// | strategy | waits | pushes a holder aside |
/// |---|---|---|
/// | [`Retry`](Self::Retry) | yes | never |
/// | [`FailFast`](Self::FailFast) | no | never |
/// | [`StealStale`](Self::StealStale) | yes | when its last sign of life is too old |
/// | [`ForceAcquire`](Self::ForceAcquire) | no | always |
///
/// # Examples
///
/// ```
/// use sprag_core::Strategy;
/// use sprag_core::store::Takeover;
///
/// assert_eq!(Strategy::default(), Strategy::Retry);
/// assert_eq!(Strategy::steal_stale().takeover(), Takeover::Overdue(Strategy::STALE_AFTER));
/// assert!(!Strategy::FailFast.waits());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Waits for the holder to be done: best for conflicts that pass.
    #[default]
    Retry,
    /// Gives up at once: best for work that somebody else may do as well.
    FailFast,
    /// Takes the lock from a holder that has given no sign of life for `after` and for two thirds
    /// of its TTL, and waits for one that is alive: best for recovery after a crash.
    ///
    /// The old holder is told at its next renewal. If it was only slow, both believe to hold
    /// the lock until then, and the fence tells them apart.
    StealStale {
        /// How old the last sign of life has to be.
        after: Duration,
    },
    /// Takes the lock from whoever holds it, past the queue: for operators only.
    ///
    /// Breaks exclusion by request; the fence still grows. Off unless the configuration allows
    /// it.
    ForceAcquire,
}

impl Strategy {
    /// The age at which a sign of life is old, unless another is given: 5 minutes.
    pub const STALE_AFTER: Duration = Duration::from_secs(300);

    /// [`StealStale`](Self::StealStale) after [`STALE_AFTER`](Self::STALE_AFTER).
    pub const fn steal_stale() -> Self {
        Self::StealStale { after: Self::STALE_AFTER }
    }

    /// What the store is told about the holder in the way.
    pub const fn takeover(self) -> Takeover {
        match self {
            Self::Retry | Self::FailFast => Takeover::No,
            Self::StealStale { after } => Takeover::Overdue(after),
            Self::ForceAcquire => Takeover::Force,
        }
    }

    /// Whether to wait when the store says that the lock is held.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Retry | Self::StealStale { .. })
    }

    /// A short name, used in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::FailFast => "fail-fast",
            Self::StealStale { .. } => "steal-stale",
            Self::ForceAcquire => "force-acquire",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy;
    use crate::store::Takeover;
    use std::time::Duration;

    #[test]
    fn only_the_strategies_that_say_so_wait_or_take() {
        let after = Duration::from_secs(7);
        let cases = [
            (Strategy::Retry, true, Takeover::No),
            (Strategy::FailFast, false, Takeover::No),
            (Strategy::StealStale { after }, true, Takeover::Overdue(after)),
            (Strategy::ForceAcquire, false, Takeover::Force),
        ];
        for (strategy, waits, takeover) in cases {
            assert_eq!((strategy.waits(), strategy.takeover()), (waits, takeover), "{strategy}");
        }
    }
}
