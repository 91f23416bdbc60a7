//! Every conformance case on the store in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::MemoryStore;
use sprag_testkit::fault::{Call, FaultStore};
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::support::eventually;

struct Memory(MemoryStore);

#[async_trait]
impl Harness for Memory {
    async fn fresh() -> Self {
        Self(MemoryStore::new())
    }

    async fn session(&self) -> Arc<Session> {
        let store = self.0.connect();
        let process = store.clone();
        Arc::new(Session::new(Arc::new(store), move || process.kill()))
    }
}

sprag_testkit::conformance!(Memory);

/// Whatever the times at which they were taken.
#[tokio::test]
async fn the_locks_of_a_client_are_soon_renewed_together() {
    const TTL: Duration = Duration::from_secs(2);
    const LOCKS: u32 = 8;
    let faults = FaultStore::new(Arc::new(MemoryStore::new().connect()));
    let (client, mut guards) = (faults.client(), Vec::new());
    for number in 0..LOCKS {
        guards.push(client.lock(format!("lock-{number}")).ttl(TTL).acquire().await.unwrap());
        // Over the whole time between two renewals.
        tokio::time::sleep(TTL / 3 / LOCKS).await;
    }
    let together = |call: &Call| matches!(call, Call::Renew(all) if all.len() == guards.len());
    eventually("one request for all", || async { faults.calls().iter().any(together) }).await;
    assert!(guards.iter().all(sprag_core::LockGuard::is_valid));
}
