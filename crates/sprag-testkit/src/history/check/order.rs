//! C1 and C3: fences are unique and follow real time.

use std::collections::BTreeMap;

use super::sweep::{Mark, largest_before};
use crate::history::attempt::{Attempt, Belief, Lock, Taken};
use crate::history::{Check, Event, Op, Outcome, Rules, Violation};
use sprag_core::{Fence, Mode};

/// C1: no fence is given out twice, and no lease is granted twice with different fences.
pub(super) fn unique_fences(lock: &Lock<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut owners: BTreeMap<Fence, &Event> = BTreeMap::new();
    for attempt in lock.attempts.values() {
        let taken = attempt.taken();
        for grant in taken.iter().filter(|grant| grant.mode.takes_new_fence()) {
            if let Some(other) = owners.insert(grant.fence, grant.event) {
                let what = format!("fence {} was given out twice", grant.fence);
                found.push(Violation::new(Check::C1, lock.name, what, &[other, grant.event]));
            }
        }
        let mut grants = taken.iter().filter(|grant| grant.event.op == Op::Granted);
        if let (Some(first), Some(second)) = (grants.next(), grants.next()) {
            let what = "one lease was granted twice, with different fences".into();
            found.push(Violation::new(Check::C1, lock.name, what, &[first.event, second.event]));
        }
    }
    found
}

/// C1: fences grow in the order of the grants, as far as time tells it.
pub(super) fn growing_fences(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    let taken = lock.taken();
    // A grant that was learned before another was asked for is the older one.
    let learned = |grant: &Taken<'_>| (grant.learned, grant.fence);
    let mut found = compare(lock, Check::C1, &taken, marks(&taken, learned));
    if !rules.exclusion {
        return found;
    }
    // Exclusive grants whose owners believed in them come one after the other, so they are in
    // order even if both were asked for at the same time.
    let begins =
        |belief: &Belief<'_>| belief.mode == Mode::Exclusive && belief.event.op != Op::Renewed;
    let beliefs = lock.attempts.values().flat_map(Attempt::beliefs).filter(begins);
    let mut grants: Vec<(u64, &Event)> =
        beliefs.map(|belief| (belief.start, belief.event)).collect();
    grants.sort_by_key(|(start, _)| *start);
    for pair in grants.windows(2) {
        let (older, newer) = (pair[0].1, pair[1].1);
        if older.fence >= newer.fence && older.attempt != newer.attempt {
            let what = format!(
                "{} was granted after {} with a fence that is not larger",
                newer.proc, older.proc
            );
            found.push(Violation::new(Check::C1, lock.name, what, &[older, newer]));
        }
    }
    found
}

/// C3: what is asked for after a release was answered gets a larger fence.
pub(super) fn after_release(lock: &Lock<'_>) -> Vec<Violation> {
    let mut released = Vec::new();
    for attempt in lock.attempts.values() {
        let freed =
            |event: &&Event| event.op == Op::Released && event.outcome == Some(Outcome::Freed);
        let release = attempt.events.iter().copied().find(freed);
        if let (Some(release), Some(last)) = (release, attempt.taken().last()) {
            released.push(Mark { at: release.t_recv_ns, fence: last.fence, event: release });
        }
    }
    compare(lock, Check::C3, &lock.taken(), released)
}

fn marks<'a>(taken: &[Taken<'a>], at: impl Fn(&Taken<'a>) -> (u64, Fence)) -> Vec<Mark<'a>> {
    let mark = |grant: &Taken<'a>| {
        let (at, fence) = at(grant);
        Mark { at, fence, event: grant.event }
    };
    taken.iter().map(mark).collect()
}

/// Each grant has a larger fence than what was done before it was asked for; a shared grant at
/// least the same.
fn compare<'a>(
    lock: &Lock<'a>,
    check: Check,
    taken: &[Taken<'a>],
    done: Vec<Mark<'a>>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    largest_before(done, marks(taken, |grant| (grant.asked, grant.fence)), |older, newer| {
        let same_is_fine = !newer.event.mode.takes_new_fence();
        if older.fence < newer.fence || (same_is_fine && older.fence == newer.fence) {
            return;
        }
        let done = if check == Check::C3 { "the release of" } else { "the grant of" };
        let what = format!(
            "{} was granted fence {} after {done} fence {} was answered",
            newer.event.proc, newer.fence, older.fence
        );
        found.push(Violation::new(check, lock.name, what, &[older.event, newer.event]));
    });
    found
}
