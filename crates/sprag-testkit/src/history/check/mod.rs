//! [`check()`]: one file for each group of checks.

mod exclusion;
mod fairness;
mod liveness;
mod order;
mod resource;
mod sweep;
mod truth;

use super::attempt::locks;
use super::{Event, Rules, Violation};

/// Lists every violation of the rules, by lock and check.
///
/// Takes the time of sorting the events. Their order in the slice means nothing.
pub fn check(events: &[Event], rules: &Rules) -> Vec<Violation> {
    let end = events.iter().map(|event| event.t_recv_ns).max().unwrap_or(0);
    let mut found = Vec::new();
    for lock in locks(events, rules) {
        found.extend(order::unique_fences(&lock));
        found.extend(order::growing_fences(&lock, rules));
        found.extend(exclusion::beliefs(&lock, rules, end));
        found.extend(exclusion::sections(&lock, rules, end));
        found.extend(order::after_release(&lock));
        found.extend(resource::guarded(&lock, rules));
        found.extend(liveness::granted_in_time(&lock, rules, end));
        found.extend(fairness::first_come_first_served(&lock, rules));
        found.extend(liveness::nothing_left(&lock, rules));
        found.extend(truth::loss_is_told_in_time(&lock, rules, end));
        found.extend(truth::loss_is_real(&lock, rules));
        found.extend(truth::releases_are_true(&lock, rules));
        found.extend(truth::beliefs_are_true(&lock, rules));
    }
    found
}
