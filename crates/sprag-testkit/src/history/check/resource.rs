//! C4: a guarded resource never goes back to a smaller fence and loses no update.

use super::sweep::{Mark, largest_before};
use crate::history::attempt::Lock;
use crate::history::{Check, Event, Outcome, Rules, Violation};

/// C4: accepted fences never decrease, and the counter is the number of acknowledged writes.
pub(super) fn guarded(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    if !rules.fenced_resource {
        return Vec::new();
    }
    let with = |outcome| lock.writes.iter().filter(move |w| w.outcome == Some(outcome)).copied();
    let accepted: Vec<&Event> = with(Outcome::Accepted).collect();
    let mut found = growing(lock, &accepted);
    found.extend(by_value(lock, accepted.clone()));
    if let Some(last) = lock.counted.iter().max_by_key(|event| event.t_send_ns)
        && let Some(value) = last.value
    {
        // A write without an answer may have been done or not.
        let sure = accepted.len() as u64;
        let possible = sure + with(Outcome::Unknown).count() as u64;
        if !(sure..=possible).contains(&value) {
            let what = format!(
                "the counter is {value} after {sure} acknowledged and {} unanswered writes",
                possible - sure
            );
            found.push(Violation::new(Check::C4, lock.name, what, &[last]));
        }
    }
    found
}

/// A write sent after another was accepted does not carry a smaller fence.
fn growing<'a>(lock: &Lock<'a>, accepted: &[&'a Event]) -> Vec<Violation> {
    let mark = |at: u64, event: &'a Event| event.fence.map(|fence| Mark { at, fence, event });
    let done = accepted.iter().filter_map(|event| mark(event.t_recv_ns, event)).collect();
    let begun = accepted.iter().filter_map(|event| mark(event.t_send_ns, event)).collect();
    let mut found = Vec::new();
    largest_before(done, begun, |older, newer| {
        if newer.fence < older.fence {
            found.push(backwards(lock, older.event, newer.event));
        }
    });
    found
}

/// The values that the resource answered give the exact order of the writes.
fn by_value(lock: &Lock<'_>, mut accepted: Vec<&Event>) -> Vec<Violation> {
    accepted.retain(|event| event.value.is_some());
    accepted.sort_by_key(|event| event.value);
    let mut found = Vec::new();
    for pair in accepted.windows(2) {
        let (older, newer) = (pair[0], pair[1]);
        if older.value == newer.value {
            let what = "an update was lost: two writes made the same value".into();
            found.push(Violation::new(Check::C4, lock.name, what, &[older, newer]));
        } else if newer.fence < older.fence && newer.t_send_ns <= older.t_recv_ns {
            // Otherwise the times have told it already.
            found.push(backwards(lock, older, newer));
        }
    }
    found
}

fn backwards(lock: &Lock<'_>, older: &Event, newer: &Event) -> Violation {
    let what = "the resource accepted a smaller fence after a larger one".into();
    Violation::new(Check::C4, lock.name, what, &[older, newer])
}
