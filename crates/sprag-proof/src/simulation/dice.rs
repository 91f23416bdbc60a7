//! [`Dice`]: every choice of a simulation, drawn from its seed.

use std::time::Duration;

use sprag_core::entropy::SeededEntropy;

/// A sequence of choices that belongs to a seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(fastrand::Rng);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Dice of their own for a part of the simulation, so that its choices do not depend on how
    /// often the others draw.
    pub(crate) fn fork(&mut self) -> Self {
        Self::new(self.0.u64(..))
    }

    pub(crate) fn entropy(&mut self) -> SeededEntropy {
        SeededEntropy::new(self.0.u64(..))
    }

    pub(crate) fn id(&mut self) -> u128 {
        self.0.u128(..)
    }

    /// Happens `per_mille` times out of a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.0.u64(0..1000) < per_mille
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn number(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high)
    }

    /// A place in a list of `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.0.usize(0..length)
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// A time from `low` to `high` milliseconds. Short ones are as likely as long ones: each
    /// power of two gets the same share.
    pub(crate) fn time(&mut self, low: u64, high: u64) -> Duration {
        let (mut from, low) = (low.max(1), low.max(1));
        let doublings = u64::from((high / low).max(1).ilog2());
        from <<= self.number(0, doublings);
        Duration::from_millis(self.number(from.min(high), (from * 2).min(high)))
    }
}
