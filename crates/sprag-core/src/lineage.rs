//! How one [`PartyId`] is inside of another: a command that runs under a lock and waits for more.
//!
//! A process that holds a lock while it runs a command does not go on before the command has
//! ended. So whatever the command waits for, the process around it waits for as well, and a
//! deadlock may go through both. Everybody who looks at the store has to see that, and all that
//! is stored of a party is its id. So the id tells: like a path, it begins with the ids around it.
//!
//! ```text
//!   |  48 random bits  |  20 bits  |  20 bits  |  20 bits  |  20 bits, all 0  |
//!   |  outermost       |  inside   |  inside   |  inside   |                  |
//! ```
//!
//! The zeros at the end tell these ids from those of tasks, which nobody is inside of.
//!
//! Two commands under the same process are inside of it, but not of each other: the one may well
//! wait for what the other one holds.

use std::ops::RangeInclusive;

use crate::entropy::Entropy;
use crate::id::PartyId;

/// How many bits tell the parties inside of one apart.
const STEP: u32 = 20;
/// How many bits there are for all steps, and the zeros behind them.
const INSIDE: u32 = 4 * STEP;

impl PartyId {
    /// Draws a party that others can be [inside](Self::inner) of.
    pub fn outermost(entropy: &dyn Entropy) -> Self {
        Self::from_u128(entropy.next_u128() & !below(INSIDE))
    }

    /// Draws a party inside of this one; `None` if it is too far inside itself, or not made to
    /// have others inside.
    pub fn inner(self, entropy: &dyn Entropy) -> Option<Self> {
        let shift = self.room().checked_sub(STEP).filter(|shift| *shift >= STEP)?;
        let step = (entropy.next_u128() & below(STEP)).max(1);
        Some(Self::from_u128(self.as_u128() | step << shift))
    }

    /// Whether `other` is inside of this one, at any depth.
    pub fn is_around(self, other: Self) -> bool {
        self != other && self.and_inside().contains(&other)
    }

    /// Whether this party was made to be inside of another.
    pub(crate) fn is_inner(self) -> bool {
        (STEP..INSIDE).contains(&self.room())
    }

    /// This party and all that can be inside of it: they are neighbours in their order.
    pub(crate) fn and_inside(self) -> RangeInclusive<Self> {
        self..=Self::from_u128(self.as_u128() | below(self.room()))
    }

    /// How many bits are left for parties inside.
    fn room(self) -> u32 {
        let free = self.as_u128().trailing_zeros().min(INSIDE);
        free - free % STEP
    }
}

const fn below(bits: u32) -> u128 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::PartyId;
    use crate::entropy::SeededEntropy;

    #[test]
    fn a_party_is_around_all_inside_of_it_and_nobody_else() {
        let entropy = SeededEntropy::new(7);
        for _ in 0..1000 {
            let outermost = PartyId::outermost(&entropy);
            let one = outermost.inner(&entropy).unwrap();
            let two = outermost.inner(&entropy).unwrap();
            let deep = one.inner(&entropy).unwrap();
            let deepest = deep.inner(&entropy).unwrap();
            let line = [outermost, one, deep, deepest];
            for (depth, party) in line.iter().enumerate() {
                for (other, inner) in line.iter().enumerate() {
                    assert_eq!(party.is_around(*inner), depth < other, "{line:?}");
                }
            }
            assert!(outermost.is_around(two));
            for party in [one, deep, deepest] {
                assert!(!two.is_around(party) && !party.is_around(two), "{two:?} {party:?}");
            }
            assert_eq!(deepest.inner(&entropy), None);
            assert_eq!(line.map(PartyId::is_inner), [false, true, true, true]);
            let stranger = PartyId::random(&entropy);
            assert!(line.iter().all(|party| !party.is_around(stranger)));
            assert!(line.iter().all(|party| !stranger.is_around(*party)));
        }
    }
}
