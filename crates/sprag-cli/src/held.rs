//! The message for a lock that is held: who, why, since when, and what to do about it.

use std::time::Duration;

use serde_json::json;
use sprag::{Error, HolderView, LockView, Wait};

use crate::code::Code;
use crate::failure::Failure;
use crate::output::plain::{self, one_line};
use crate::output::time;
use crate::output::view;
use crate::store::Opened;

/// Turns an error of acquiring into a failure; held is described by looking at the lock.
pub(crate) async fn explain(error: Error, opened: &Opened) -> Failure {
    let (Some(name), true) = (error.lock(), error.is_held() || error.is_timeout()) else {
        return error.into();
    };
    match opened.inspect(name.as_str()).await {
        Ok(seen) if seen.is_locked() => describe(&seen, &opened.shown),
        // It became free meanwhile, or the store is gone: the error says what was true.
        _ => error.into(),
    }
}

/// The failure for a lock that others hold.
pub(crate) fn describe(lock: &LockView, shown: &str) -> Failure {
    let name = &lock.name;
    if let Some(holder) = lock.holders.iter().find(|holder| looks_dead(holder)) {
        return describe_stale(lock, holder, shown);
    }
    let mut failure = Failure::new(Code::Held, format!("lock {name:?} is held"));
    if let [holder] = &lock.holders[..] {
        failure = about(failure, holder);
    } else {
        failure = failure.fact("holders", format!("{} of them", lock.holders.len()));
        for holder in lock.holders.iter().take(3) {
            failure = failure.fact("", holder.holder.worker_id.clone());
        }
    }
    if let Some(longest) = lock.waiters.iter().map(|waiter| waiter.waiting).max() {
        let longest = time::span(longest);
        failure =
            failure.fact("queue", format!("{} waiting, longest {longest}", lock.waiters.len()));
    }
    let word = plain::shell_word(name.as_str());
    failure
        .fact("store", shown)
        .hint("wait for it", format!("sprag run --wait 10m {word} -- ..."))
        .hint("watch it", format!("sprag show -w {word}"))
        .hint("see what holds it up", format!("sprag why {word}"))
        .detail("lock", name.as_str())
        .detail("state", view::lock(lock))
        .detail("store", json!(shown))
}

/// The failure for a lock whose holder gives no sign of life.
fn describe_stale(lock: &LockView, holder: &HolderView, shown: &str) -> Failure {
    let name = &lock.name;
    let word = plain::shell_word(name.as_str());
    let silent = silent(holder).map(time::span).unwrap_or_default();
    let limit = time::span(holder.ttl / 3 * 2);
    let message = format!("lock {name:?} is held by a holder that looks dead");
    let failure = about(Failure::new(Code::Stale, message), holder);
    // Breaking a lease that has time left has to be said twice.
    let force = match holder.remaining {
        Some(Duration::ZERO) => "",
        _ => " --force",
    };
    failure
        .fact("signs", format!("no renewal for {silent} (limit {limit})"))
        .fact("store", shown)
        .hint("take it over", format!("sprag run --takeover={limit} {word} -- ..."))
        .hint("free it", format!("sprag break {word} --token {}{force} -m WHY", holder.fence))
        .detail("lock", name.as_str())
        .detail("state", view::lock(lock))
        .detail("store", json!(shown))
}

/// How long a holder has not renewed its lease.
fn silent(holder: &HolderView) -> Option<Duration> {
    Some(holder.ttl.saturating_sub(holder.remaining?))
}

/// Whether a holder has missed two renewals, of which there are three in a TTL. A detached lease is
/// not renewed by itself.
fn looks_dead(holder: &HolderView) -> bool {
    !holder.detached && silent(holder).is_some_and(|silent| silent >= holder.ttl / 3 * 2)
}

fn about(failure: Failure, holder: &HolderView) -> Failure {
    let mut failure = failure.fact("holder", holder.holder.worker_id.clone());
    if let Some(reason) = &holder.holder.reason {
        failure = failure.fact("reason", reason.clone());
    }
    let since = holder
        .holder
        .since_unix_ms
        .map(|since| format!("{} ({} ago), ", time::full(since), time::span(time::ago(since))));
    failure
        .fact("since", format!("{}token {}", since.unwrap_or_default(), holder.fence))
        .fact("lease", lease(holder))
}

/// What `me` is told while it waits: for whom, in which place, since when.
pub(crate) fn waiting(lock: &LockView, me: &str, waited: Duration, wait: Wait) -> String {
    let mut text = format!("waiting for {:?}: {}", lock.name, by(lock));
    if let [holder] = &lock.holders[..] {
        text.extend(renewed(holder).map(|renewed| format!(", {renewed}")));
    }
    if let Some(place) = place(lock, me) {
        text += &format!("; queue position {place} of {}", lock.waiters.len());
    }
    text += &format!("; waited {}", time::span(waited));
    if let Wait::AtMost(limit) = wait {
        text += &format!(" of {}", time::span(limit));
    }
    text
}

/// The place of `me` among those who wait, from 1.
pub(crate) fn place(lock: &LockView, me: &str) -> Option<usize> {
    let place = lock.waiters.iter().position(|waiter| waiter.holder.worker_id == me);
    place.map(|index| index + 1)
}

/// Who holds a lock, since when and why, in one line.
pub(crate) fn by(lock: &LockView) -> String {
    let Some(first) = lock.holders.first() else { return "nobody holds it".to_owned() };
    let mut text = format!("held by {}", one_line(&first.holder.worker_id));
    if let Some(since) = first.holder.since_unix_ms {
        let held = time::span(time::ago(since));
        text += &format!(" since {} ({held})", time::short(since));
    }
    if let Some(reason) = &first.holder.reason {
        text += &format!(", {reason:?}");
    }
    match lock.holders.len() - 1 {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// How a holder's lease is, in few words.
pub(crate) fn renewed(holder: &HolderView) -> Option<String> {
    let left = holder.remaining?;
    Some(if left.is_zero() {
        "lease EXPIRED".to_owned()
    } else if holder.detached {
        format!("lease ends in {}", time::span(left))
    } else {
        format!("renewed {} ago", time::span(holder.ttl.saturating_sub(left)))
    })
}

/// How a holder's lease is, in words.
pub(crate) fn lease(holder: &HolderView) -> String {
    let ttl = time::span(holder.ttl);
    match holder.remaining {
        None => format!("{ttl} long; this store cannot say how much is left"),
        Some(Duration::ZERO) => format!("EXPIRED (it was {ttl} long)"),
        Some(left) if holder.detached => {
            format!("alive: ends in {} unless it is renewed", time::span(left))
        }
        Some(left) => {
            let renewed = time::span(holder.ttl.saturating_sub(left));
            let left = time::span(left);
            format!("alive: renewed {renewed} ago, expires in {left} if renewals stop")
        }
    }
}
