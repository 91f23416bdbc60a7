//! Locks, holders and waiters as JSON. Lease ids stay out: whoever knows one may release it.

use std::time::Duration;

use serde_json::{Value, json};
use sprag::{HolderView, LockView, Mode, WaiterView};

use super::time;

/// One lock, without the schema.
pub(crate) fn lock(lock: &LockView) -> Value {
    json!({
        "name": lock.name.as_str(),
        "token": lock.fence.get(),
        "slots": lock.limit,
        "holders": lock.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiters": lock.waiters.iter().map(waiter).collect::<Vec<_>>(),
    })
}

fn holder(holder: &HolderView) -> Value {
    json!({
        "holder": holder.holder.worker_id,
        "host": holder.holder.node_id,
        "reason": holder.holder.reason,
        "since": holder.holder.since_unix_ms.map(time::rfc3339),
        "mode": holder.mode.as_str(),
        "count": count(holder.mode),
        "token": holder.fence.get(),
        "ttl_ms": millis(holder.ttl),
        "remaining_ms": holder.remaining.map(millis),
        "detached": holder.detached,
        "upgrading": holder.upgrading,
    })
}

fn waiter(waiter: &WaiterView) -> Value {
    json!({
        "holder": waiter.holder.worker_id,
        "host": waiter.holder.node_id,
        "reason": waiter.holder.reason,
        "mode": waiter.mode.as_str(),
        "count": count(waiter.mode),
        "priority": waiter.priority,
        "waiting_ms": millis(waiter.waiting),
    })
}

const fn count(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permits { count, .. } => Some(count),
        _ => None,
    }
}

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
