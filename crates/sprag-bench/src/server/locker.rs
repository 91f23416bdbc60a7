//! [`Locker`]: whose lock is measured.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;

use crate::now_nanos;
use crate::visits::Visit;

/// The length of every lease.
pub(crate) const TTL: Duration = Duration::from_secs(30);
/// The same in milliseconds.
pub(crate) const TTL_MS: usize = 30_000;

/// One user of a lock, with a connection of its own unless it says otherwise.
#[async_trait]
pub(crate) trait Locker: Send + Sync {
    /// Waits for the lock, stays inside, gives it back.
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit>;
}

/// Takes the times of a visit.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    wanted: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { wanted: now_nanos() }
    }

    /// Inside: stays there. What is returned is complete once the lock was given back.
    pub(crate) async fn stay(&self, stay: Duration) -> Visit {
        let entered = now_nanos();
        if !stay.is_zero() {
            tokio::time::sleep(stay).await;
        }
        Visit { entered, wanted: self.wanted, done: now_nanos(), left: 0 }
    }
}

/// The lock was given back.
pub(crate) fn left(visit: Visit) -> Visit {
    Visit { left: now_nanos(), ..visit }
}
