//! Every conformance case on advisory locks of PostgreSQL, with a database of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use sprag::{AdvisoryStore, PostgresAddress, PostgresConfig};
use sprag_testkit::crowd;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::postgres_server::{self, Database};
use sprag_testkit::process_conformance;
use sprag_testkit::support::sized;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Advisory(Database);

#[async_trait]
impl Harness for Advisory {
    fn skipped() -> bool {
        postgres_server::skipped()
    }

    async fn fresh() -> Self {
        Self(Database::fresh())
    }

    async fn session(&self) -> Arc<Session> {
        let address = PostgresAddress::Unix(self.0.folder(), self.0.port());
        let config = PostgresConfig::new(address, self.0.name()).user("postgres");
        let store = AdvisoryStore::connect(config.max_locks(10_000)).await.unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?mode=advisory", self.0.url()))
    }
}

sprag_testkit::conformance!(Advisory);

process_conformance!(processes, Advisory, TAKER);

/// More than 2,000 are not drained in good time; `docs/stores/postgres.md` says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_process_drains() {
    if !Advisory::skipped() {
        crowd::tasks_of_one_process_drain(&Advisory::fresh().await, sized(1_000, 2_000)).await;
    }
}
