//! C5 and C7: everybody is served, and nothing is left.

use std::time::Duration;

use crate::history::attempt::Lock;
use crate::history::violation::Ms;
use crate::history::{Check, Op, Rules, Violation};

/// C5: after the faults every waiter is granted in time.
///
/// Who gave up earlier, or was killed, does not count.
pub(super) fn granted_in_time(lock: &Lock<'_>, rules: &Rules, end: u64) -> Vec<Violation> {
    let Some(healed) = rules.healed_at_ns else { return Vec::new() };
    let mut found = Vec::new();
    for attempt in lock.attempts.values() {
        let Some(request) = attempt.first(Op::Request) else { continue };
        let since = request.t_send_ns.max(healed);
        let limit = since.saturating_add(nanos(rules.grant_within));
        let answer = [Op::Granted, Op::Withdrawn, Op::Lost];
        let answer = answer.into_iter().filter_map(|op| attempt.first(op));
        let answer = answer.min_by_key(|event| event.t_recv_ns);
        let answered = answer.map(|event| event.t_recv_ns).into_iter().chain(attempt.killed).min();
        if answered.unwrap_or(end) > limit {
            let waited = Ms(answered.unwrap_or(end) - since);
            let what = format!("{} waited {waited} ms after the faults", request.proc);
            let shown: Vec<_> = [Some(request), answer].into_iter().flatten().collect();
            found.push(Violation::new(Check::C5, lock.name, what, &shown));
        }
    }
    found
}

/// C7: at the end nobody holds the lock and nobody waits for it.
pub(super) fn nothing_left(lock: &Lock<'_>, rules: &Rules) -> Vec<Violation> {
    if !rules.empty_at_end {
        return Vec::new();
    }
    let last = lock.looks.iter().rfind(|look| look.op == Op::Final);
    let Some(last) = last else {
        let what = "nobody looked at the lock in the end".into();
        return vec![Violation::new(Check::C7, lock.name, what, &[])];
    };
    let left = last.seen.clone().unwrap_or_default();
    if left.holders.is_empty() && left.waiters.is_empty() {
        return Vec::new();
    }
    let mut shown = vec![*last];
    let first = left.holders.first().or(left.waiters.first());
    let attempt = first.and_then(|lease| lock.attempts.get(lease));
    shown.extend(attempt.and_then(|attempt| attempt.events.last().copied()));
    let (hold, wait) = (left.holders.len(), left.waiters.len());
    let what = format!("{hold} holders and {wait} waiters are left in the end");
    vec![Violation::new(Check::C7, lock.name, what, &shown)]
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
