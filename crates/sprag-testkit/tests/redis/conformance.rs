//! Every conformance case on the Redis store, with a server of its own for each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sprag::{RedisAddress, RedisConfig, RedisStore};
use sprag_core::LockName;
use sprag_core::record::Record;
use sprag_testkit::crowd;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process::cases::Scene;
use sprag_testkit::process_conformance;
use sprag_testkit::redis_server::RedisServer;
use sprag_testkit::support::sized;

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");

struct Redis(RedisServer);

#[async_trait]
impl Harness for Redis {
    fn skipped() -> bool {
        RedisServer::skipped()
    }

    async fn fresh() -> Self {
        Self(RedisServer::start(&[]).await)
    }

    async fn session(&self) -> Arc<Session> {
        let config = RedisConfig::new(RedisAddress::Unix(self.0.socket()));
        let store = RedisStore::connect(config).await.unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(self.0.url())
    }

    /// Redis cannot know that a process is dead.
    fn sees_death(&self) -> bool {
        false
    }

    /// Only what cannot be read: the rest of the case's record is on another clock, and the queue
    /// is in keys of its own.
    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let key = format!("{{sprag:{name}}}:r");
        Record::from_json(text).is_err() && self.0.ask(&["HSET", &key, "n", text]) == "0"
    }
}

sprag_testkit::conformance!(Redis);

process_conformance!(processes, Redis, TAKER);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_process_drains() {
    if !Redis::skipped() {
        crowd::tasks_of_one_process_drain(&Redis::fresh().await, crowd::WAITERS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_processes_is_quiet_and_drains() {
    if let Some(scene) = Scene::new::<Redis>(Path::new(TAKER)).await {
        crowd::processes_drain(&scene, sized(16, 1000)).await;
    }
}
