//! Every conformance case on the store in memory.

use std::sync::Arc;

use sprag_core::MemoryStore;
use sprag_testkit::harness::{Harness, Session};

struct Memory(MemoryStore);

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
