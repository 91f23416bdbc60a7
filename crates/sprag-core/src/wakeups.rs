//! [`Wakeups`]: what this process hears about its waiters.
//!
//! The message of a grant carries the fence, and the waiter enters without asking again. It may come
//! late, even after the lease has ended. That is as safe as an answer that comes late: the waiter
//! counts its lease from its last question that was answered "not yet", which was before the grant.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use crate::evictions::EvictionFeed;
use crate::fence::Fence;
use crate::id::LeaseId;
use crate::mailbox::Mailboxes;
use crate::relay::Relay;
pub use crate::relay::{Heir, Tenure};

/// The mailboxes of this process, the grants that came for those who wait in a queue, and what those
/// who entered with one know: who let them in, and whom they let in before that is written.
#[derive(Debug, Default)]
pub struct Wakeups {
    /// The hints.
    pub mailboxes: Mailboxes,
    /// The hints that locks were taken away.
    pub evictions: EvictionFeed,
    relay: Mutex<Relay>,
    /// Whether anybody was ever [severed](Self::sever), so that most need not ask.
    any_severed: AtomicBool,
    severed: Notify,
}

impl Wakeups {
    /// What was told before may have been missed: everybody looks.
    pub fn hear_gap(&self) {
        self.mailboxes.notify_all();
        self.evictions.tell_gap();
    }

    /// From now on hints for `lease` are kept, and the grant with which its wait in a queue ends.
    pub fn open(&self, lease: LeaseId) {
        self.mailboxes.open(lease);
        self.relay().open(lease);
    }

    /// Whether grants for `lease` are kept: it has asked for a lock, and was not told since that it
    /// does not wait.
    pub fn is_open(&self, lease: LeaseId) -> bool {
        self.relay().is_open(lease)
    }

    /// Forgets what came for `lease` while it waits. What it knows if it is inside stays.
    pub fn close(&self, lease: LeaseId) {
        self.mailboxes.close(lease);
        self.relay().close(lease);
    }

    /// The fence with which `lease` was granted since it waits, if that was told.
    pub fn granted(&self, lease: LeaseId) -> Option<Fence> {
        self.relay().granted(lease)
    }

    /// Takes in a message about what is written: the lease, a colon, and the fence or 0 if it was not
    /// granted; then, if there is one, its heir in the same way: `LEASE:FENCE:HEIR:FENCE`.
    ///
    /// Or that the lock of a lease was taken away, whether or not it is one of this process:
    /// `evicted LEASE`.
    pub fn hear(&self, text: &str) {
        if let Some(Ok(lease)) = text.strip_prefix("evicted ").map(str::parse) {
            return self.evictions.tell(lease);
        }
        let mut words = text.split(':');
        let Some(Ok(lease)) = words.next().map(str::parse) else {
            return self.mailboxes.notify_all();
        };
        let fence = words.next().and_then(fence_of);
        let heir = words.next().and_then(|lease| lease.parse().ok());
        let heir = heir.zip(words.next().and_then(fence_of));
        let heir = heir.map(|(lease, fence)| Heir { lease, fence });
        if self.relay().hear(lease, fence, heir) {
            self.tell_severed();
        }
        self.mailboxes.notify(lease);
    }

    /// The fence with which `lease` was granted since it waits, if that was told: it is inside from
    /// now on, until it [passes on](Self::pass_on), and does not wait any more.
    pub fn enter(&self, lease: LeaseId) -> Option<Fence> {
        let fence = self.relay().enter(lease)?;
        self.mailboxes.close(lease);
        Some(fence)
    }

    /// Who let `lease`, which is inside, in and may not have written that yet. Whoever asks the store
    /// anything about `lease` writes that release first, and then [confirms](Self::confirm) it.
    pub fn predecessor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        self.relay().predecessor_of(lease)
    }

    /// Whom `lease` has let in, unless it is known that this is written.
    pub fn successor_of(&self, lease: LeaseId) -> Option<LeaseId> {
        self.relay().successor_of(lease)
    }

    /// What `lease` was let in by is written.
    pub fn confirm(&self, lease: LeaseId) {
        self.relay().confirm(lease);
    }

    /// `lease` gives its lock back: lets its heir in, if it waits, and forgets all about `lease`.
    /// Returns what was known about it, with the heir only if it was let in. Once more it lets in
    /// nobody.
    ///
    /// The release is sent after this, and its answer tells what the heir may rely on.
    pub fn pass_on(&self, lease: LeaseId) -> Tenure {
        let tenure = self.relay().pass_on(lease);
        self.mailboxes.close(lease);
        if let Some(heir) = tenure.heir {
            self.mailboxes.notify(heir.lease);
        }
        tenure
    }

    /// From now on `lease` lets in nobody by itself: it is converted, or belongs to somebody else.
    pub fn leave(&self, lease: LeaseId) {
        self.relay().leave(lease);
    }

    /// `lease` was let in by one that had nothing to pass on: if it is inside it has to leave.
    pub fn sever(&self, lease: LeaseId) {
        if self.relay().sever(lease) {
            self.tell_severed();
        }
    }

    /// What `lease`, which may have entered, was promised is taken back: by one that cannot tell it
    /// from a mere hint. One that waits is not let in by its predecessor, and one whose predecessor
    /// has not written that it was let in has to leave.
    pub fn take_back(&self, lease: LeaseId) {
        let mut relay = self.relay();
        relay.disinherit(lease);
        let told = relay.predecessor_of(lease).is_some() && relay.sever(lease);
        drop(relay);
        if told {
            self.tell_severed();
        }
    }

    /// Whether `lease` is inside without a right to be, see
    /// [`Store::is_severed`](crate::Store::is_severed).
    pub fn is_severed(&self, lease: LeaseId) -> bool {
        self.any_severed.load(Ordering::Acquire) && self.relay().is_severed(lease)
    }

    /// Waits until somebody was severed.
    pub async fn severed(&self) {
        self.severed.notified().await;
    }

    fn tell_severed(&self) {
        self.any_severed.store(true, Ordering::Release);
        self.severed.notify_waiters();
        // Who looks a moment later is told, too.
        self.severed.notify_one();
    }

    fn relay(&self) -> MutexGuard<'_, Relay> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fence_of(text: &str) -> Option<Fence> {
    text.parse().ok().and_then(Fence::new).filter(|fence| *fence > Fence::ZERO)
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
    use futures_util::FutureExt as _;

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

    #[test]
    fn an_heir_is_told_by_a_message_and_woken_by_who_leaves() {
        let [holds, waits] = [1, 2].map(LeaseId::from_u128);
        let heir = Some(Heir { lease: waits, fence: Fence::new(8).unwrap() });
        for (text, expected) in [
            (format!("{holds}:7:{waits}:8"), heir),
            (format!("{holds}:7"), None),
            (format!("{holds}:7:{waits}"), None),
            (format!("{holds}:7:{waits}:0"), None),
            (format!("{holds}:7:x:8"), None),
        ] {
            let wakeups = Wakeups::default();
            [holds, waits].iter().for_each(|lease| wakeups.open(*lease));
            wakeups.hear(&text);
            assert_eq!(wakeups.enter(holds), Fence::new(7), "{text}");
            assert!(!wakeups.mailboxes.is_open(holds), "{text}");
            assert_eq!(wakeups.pass_on(holds).heir, expected, "{text}");
            assert_eq!(wakeups.mailboxes.wait(waits).now_or_never().is_some(), expected.is_some());
            assert_eq!(wakeups.enter(waits), expected.map(|heir| heir.fence), "{text}");
        }
    }

    #[test]
    fn who_is_severed_is_told_whoever_waits_for_it() {
        let lease = LeaseId::from_u128(1);
        let wakeups = Wakeups::default();
        wakeups.open(lease);
        wakeups.hear(&format!("{lease}:7"));
        wakeups.enter(lease);
        assert!(wakeups.severed().now_or_never().is_none() && !wakeups.is_severed(lease));
        wakeups.hear(&format!("{lease}:0"));
        assert!(wakeups.severed().now_or_never().is_some() && wakeups.is_severed(lease));
        wakeups.pass_on(lease);
        assert!(!wakeups.is_severed(lease));
    }
}
