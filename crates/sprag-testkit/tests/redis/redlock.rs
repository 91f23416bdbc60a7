//! Every conformance case on Redlock, with three servers of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process_conformance;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Redlock(Vec<RedisServer>);

#[async_trait]
impl Harness for Redlock {
    fn skipped() -> bool {
        RedisServer::skipped()
    }

    async fn fresh() -> Self {
        Self(RedisServer::several(3, &RedisSetup::new().tcp()).await)
    }

    async fn session(&self) -> Arc<Session> {
        let url = self.url().unwrap();
        // It blocks until a majority has answered.
        let opened = tokio::task::spawn_blocking(move || sprag::open(&url));
        Arc::new(Session::new(opened.await.unwrap().unwrap(), || {}))
    }

    /// A node may take longer than usual, for the sake of machines that are busy.
    fn url(&self) -> Option<String> {
        let nodes: Vec<_> = self.0.iter().map(RedisServer::address).collect();
        Some(format!("redlock://{}?node_timeout_ms=500", nodes.join(",")))
    }

    /// Redis cannot know that a process is dead.
    fn sees_death(&self) -> bool {
        false
    }
}

sprag_testkit::conformance!(Redlock);

process_conformance!(processes, Redlock, TAKER);
