//! [`Mode`]: how much of the lock is asked for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a lock is held.
///
/// | held \ asked | Exclusive | Shared | Upgradable | Permits |
/// |---|---|---|---|---|
/// | Exclusive | no | no | no | no |
/// | Shared | no | yes | yes | no |
/// | Upgradable | no | yes | no | no |
/// | Permits | no | no | no | while `count` permits are free |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One holder, nobody beside it. Each grant takes a new fence.
    Exclusive,
    /// Any number of readers. Grants carry the current fence.
    Shared,
    /// A reader that may become exclusive; at most one beside the shared ones.
    Upgradable,
    /// `count` of `of` permits of a semaphore. Each grant takes a new fence.
    Permits {
        /// How many permits this holder takes; at least 1.
        count: u32,
        /// How many permits the semaphore has in all.
        of: u32,
    },
}

impl Mode {
    /// Whether a grant in this mode takes a new fence.
    pub const fn takes_new_fence(self) -> bool {
        matches!(self, Self::Exclusive | Self::Permits { .. })
    }

    /// A short name, used in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Upgradable => "upgradable",
            Self::Permits { .. } => "permits",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permits { count, of } => write!(f, "{count} of {of} permits"),
            other => f.write_str(other.as_str()),
        }
    }
}
