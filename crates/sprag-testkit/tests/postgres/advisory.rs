//! Every conformance case on advisory locks of PostgreSQL, with a database of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use sprag::{AdvisoryStore, PostgresAddress, PostgresConfig};
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::postgres_server::{self, Database};
use sprag_testkit::process_conformance;

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
