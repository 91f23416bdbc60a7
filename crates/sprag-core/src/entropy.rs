//! [`Entropy`]: where random numbers come from, so that a simulation can choose them.

use std::sync::{Mutex, PoisonError};

/// A source of random numbers.
pub trait Entropy: Send + Sync + std::fmt::Debug {
    /// Draws 128 random bits.
    fn next_u128(&self) -> u128;

    /// Draws a number from 0.0 up to, and not including, 1.0; used for jitter.
    fn next_fraction(&self) -> f64 {
        // 53 bits fill the mantissa of an f64 exactly.
        let bits = u64::try_from(self.next_u128() >> 75).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
        let fraction = bits as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

/// The operating system's generator: unpredictable, so lease ids cannot be guessed.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn next_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        // A Linux without random numbers cannot run anything that needs to be unique.
        getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
        u128::from_ne_bytes(bytes)
    }
}

/// A reproducible generator for simulations and tests: one seed, one sequence.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<fastrand::Rng>);

impl SeededEntropy {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn next_u128(&self) -> u128 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entropy, OsEntropy, SeededEntropy};

    #[test]
    fn fractions_stay_below_one() {
        for _ in 0..1000 {
            let fraction = OsEntropy.next_fraction();
            assert!((0.0..1.0).contains(&fraction));
        }
    }

    #[test]
    fn one_seed_is_one_sequence() {
        let draw = |seed| SeededEntropy::new(seed).next_u128();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
