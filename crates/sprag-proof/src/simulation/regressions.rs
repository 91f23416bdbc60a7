//! Seeds that have failed once. They are run for ever.

use super::Plan;

/// Each with what it found.
pub const SEEDS: &[(Plan, &str)] = &[];
