//! [`Wakeups`]: what this process hears about its waiters.
//!
//! The message of a grant carries the fence, and the waiter enters without asking again. It may come
//! late, even after the lease has ended. That is as safe as an answer that comes late: the waiter
//! counts its lease from its last question that was answered "not yet", which was before the grant.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::fence::Fence;
use crate::id::LeaseId;
use crate::mailbox::Mailboxes;

/// The mailboxes of this process, and the grants that came for those who wait in a queue.
#[derive(Debug, Default)]
pub struct Wakeups {
    /// The hints.
    pub mailboxes: Mailboxes,
    /// Who waits in a queue, and the fence of the grant that was told since.
    awaited: Mutex<HashMap<LeaseId, Option<Fence>>>,
}

impl Wakeups {
    /// From now on hints for `lease` are kept, and the grant with which its wait in a queue ends.
    pub fn open(&self, lease: LeaseId) {
        self.mailboxes.open(lease);
        self.awaited().entry(lease).or_default();
    }

    /// Whether grants for `lease` are kept: it has asked for a lock, and was not told since that it
    /// does not wait.
    pub fn is_open(&self, lease: LeaseId) -> bool {
        self.awaited().contains_key(&lease)
    }

    /// Forgets what came for `lease`.
    pub fn close(&self, lease: LeaseId) {
        self.mailboxes.close(lease);
        self.awaited().remove(&lease);
    }

    /// The fence with which `lease` was granted since it waits, if that was told.
    pub fn granted(&self, lease: LeaseId) -> Option<Fence> {
        self.awaited().get(&lease).copied().flatten()
    }

    /// Takes in a message: the lease, a colon, and the fence or 0 if it was not granted.
    pub fn hear(&self, text: &str) {
        let (lease, fence) = text.split_once(':').unwrap_or((text, ""));
        let Ok(lease) = lease.parse() else { return self.mailboxes.notify_all() };
        let fence = fence.parse().ok().and_then(Fence::new).filter(|fence| *fence > Fence::ZERO);
        if let Some(granted) = self.awaited().get_mut(&lease) {
            *granted = fence;
        }
        self.mailboxes.notify(lease);
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<LeaseId, Option<Fence>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets another task of this thread run first. Whoever has released goes straight on to ask for
/// something else and looks for the answer, on the very thread on which its successor was woken.
pub async fn step_aside() {
    let mut stepped = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut stepped, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_kept_for_who_waits_and_for_nobody_else() {
        let (waits, other) = (LeaseId::from_u128(1), LeaseId::from_u128(2));
        let wakeups = Wakeups::default();
        wakeups.open(waits);
        assert_eq!(wakeups.granted(waits), None);
        wakeups.hear(&format!("{waits}:7"));
        wakeups.hear(&format!("{other}:8"));
        assert_eq!((wakeups.granted(waits), wakeups.granted(other)), (Fence::new(7), None));
        assert!(wakeups.is_open(waits) && !wakeups.is_open(other));
        wakeups.close(waits);
        assert_eq!(wakeups.granted(waits), None);
    }

    #[test]
    fn a_loss_and_what_is_not_understood_grant_nothing() {
        let lease = LeaseId::from_u128(1);
        let wakeups = Wakeups::default();
        wakeups.open(lease);
        for text in ["", "x", ":7"].map(String::from).into_iter().chain([
            lease.to_string(),
            format!("{lease}:"),
            format!("{lease}:0"),
            format!("{lease}:-7"),
            format!("{lease}:{}", u64::MAX),
        ]) {
            wakeups.hear(&text);
            assert_eq!(wakeups.granted(lease), None, "{text}");
        }
    }
}
