//! [`Evictions`]: hints that locks of this process may have been taken away, by a break or by force.
//!
//! A hint only makes the client renew the lease at once. The answer says whether it is lost, and to
//! whom; so a hint that comes late, twice or for somebody else costs one request.

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::id::LeaseId;

/// How many hints are kept for a client that does not read them; of more it hears that it missed some.
const KEPT: usize = 256;

/// Where a store puts the hints.
#[derive(Debug)]
pub struct EvictionFeed(Sender<Option<LeaseId>>);

impl Default for EvictionFeed {
    fn default() -> Self {
        Self(broadcast::channel(KEPT).0)
    }
}

impl EvictionFeed {
    /// The lock of `lease` was taken away.
    pub fn tell(&self, lease: LeaseId) {
        // An error means that no client listens.
        drop(self.0.send(Some(lease)));
    }

    /// Hints may have been missed.
    pub fn tell_gap(&self) {
        drop(self.0.send(None));
    }

    /// All hints from now on, of a store that listens already: those before were missed.
    pub fn subscribe(&self) -> Evictions {
        Evictions { hints: self.0.subscribe(), missed: true }
    }

    /// The same of a store that has yet to connect, and [tells of the gap](Self::tell_gap) when it has.
    pub fn subscribe_before_connecting(&self) -> Evictions {
        Evictions { hints: self.0.subscribe(), missed: false }
    }
}

/// The hints for one client.
#[derive(Debug)]
pub struct Evictions {
    hints: Receiver<Option<LeaseId>>,
    /// Whether there is a gap that was not told yet.
    missed: bool,
}

impl Evictions {
    /// Waits for the next one; `None` if some were missed, and any lease may be meant.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no hint is lost.
    pub async fn next(&mut self) -> Option<LeaseId> {
        if std::mem::take(&mut self.missed) {
            return None;
        }
        match self.hints.recv().await {
            Ok(hint) => hint,
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_client_that_reads_too_slowly_hears_of_a_gap() {
        let feed = EvictionFeed::default();
        feed.tell(LeaseId::from_u128(1));
        let mut late = feed.subscribe();
        assert_eq!(late.next().now_or_never(), Some(None), "it was before");
        let mut evictions = feed.subscribe_before_connecting();
        assert_eq!(evictions.next().now_or_never(), None);
        feed.tell(LeaseId::from_u128(2));
        feed.tell_gap();
        assert_eq!(block_on(evictions.next()), Some(LeaseId::from_u128(2)));
        assert_eq!(block_on(evictions.next()), None);
        (0..=2 * KEPT).for_each(|_| feed.tell(LeaseId::from_u128(3)));
        assert_eq!(block_on(evictions.next()), None);
        assert_eq!(block_on(evictions.next()), Some(LeaseId::from_u128(3)));
    }
}
