//! [`Fence`]: the number that only goes forward.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A fencing token: every exclusive and every permit grant of a lock takes a larger one, for ever.
///
/// Pass it with each write to the protected resource and let the resource refuse a smaller
/// fence than the largest it has seen: then a holder that was paused past its lease cannot
/// overwrite its successor's work.
///
/// Fences stay below 2^53, so they are exact as JSON numbers and in Lua.
///
/// # Examples
///
/// ```
/// use sprag_core::Fence;
///
/// let first = Fence::ZERO.after(0).unwrap();
/// let second = first.after(0).unwrap();
/// assert!(first < second);
/// // A store that may lose its state gives a floor, usually its clock in microseconds.
/// assert_eq!(second.after(1_000).unwrap().get(), 1_000);
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u64", into = "u64")]
pub struct Fence(u64);

impl Fence {
    /// No grant yet.
    pub const ZERO: Self = Self(0);
    /// The largest fence there can be: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Wraps a number; `None` from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The fence as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next fence: larger than this one and at least `floor`; `None` when none is left.
    pub const fn after(self, floor: u64) -> Option<Self> {
        let next = self.0 + 1;
        Self::new(if next > floor { next } else { floor })
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u64> for Fence {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        Self::new(number).ok_or_else(|| format!("fence {number} is not below 2^53"))
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

#[cfg(test)]
mod tests {
    use super::Fence;

    #[test]
    fn the_last_fence_has_no_successor() {
        assert_eq!(Fence::MAX.after(0), None);
        assert_eq!(Fence::ZERO.after(1 << 53), None);
        assert_eq!(Fence::new(1 << 53), None);
    }
}
