//! Seeds that have failed once. They are run for ever.

use super::Plan;

/// Each with what it found. A change of the workload makes another run out of a seed; the bugs
/// that can be planted again are therefore mutants as well.
pub const SEEDS: &[(Plan, &str)] = &[
    (Plan { seed: 101_000, hours: 1 }, "a release under way was taken for a deadlock"),
    (Plan { seed: 101_001, hours: 1 }, "a lock given away still counted as held here"),
    (Plan { seed: 101_003, hours: 1 }, "an unanswered shorter extension was ignored"),
    (Plan { seed: 101_007, hours: 1 }, "a renewal sent before an upgrade undid it"),
];
