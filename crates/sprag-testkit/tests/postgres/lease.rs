//! Every conformance case on the PostgreSQL store, with a database of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use sprag::{PostgresAddress, PostgresConfig, PostgresStore};
use sprag_testkit::crowd;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::postgres_server::{self, Database};
use sprag_testkit::process_conformance;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Postgres(Database);

#[async_trait]
impl Harness for Postgres {
    fn skipped() -> bool {
        postgres_server::skipped()
    }

    async fn fresh() -> Self {
        Self(Database::fresh())
    }

    async fn session(&self) -> Arc<Session> {
        let address = PostgresAddress::Unix(self.0.folder(), self.0.port());
        let config = PostgresConfig::new(address, self.0.name()).user("postgres");
        let store = PostgresStore::connect(config).await.unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(self.0.url())
    }

    /// Leases live by their TTL.
    fn sees_death(&self) -> bool {
        false
    }
}

sprag_testkit::conformance!(Postgres);

process_conformance!(processes, Postgres, TAKER);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_process_drains() {
    if !Postgres::skipped() {
        crowd::tasks_of_one_process_drain(&Postgres::fresh().await, crowd::WAITERS).await;
    }
}
