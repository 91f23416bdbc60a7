//! Every conformance case on a Redis Cluster: where all keys of a call have to be in one slot, names
//! are searched for and each lock has a trail of its own. They share one Cluster, each with a prefix
//! of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use sprag::{RedisAddress, RedisConfig, RedisStore};
use sprag_core::record::Record;
use sprag_core::store::Listing;
use sprag_core::{AuditQuery, Client, LockName};
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::process_conformance;
use sprag_testkit::redis_server::{RedisServer, SharedCluster};

const TAKER: &str = env!("CARGO_BIN_EXE_sprag-taker");
const KEEPER: &str = env!("CARGO_BIN_EXE_sprag-redis-cluster");

struct Cluster {
    shared: &'static SharedCluster,
    prefix: String,
}

#[async_trait]
impl Harness for Cluster {
    fn skipped() -> bool {
        RedisServer::skipped()
    }

    async fn fresh() -> Self {
        let shared = tokio::task::spawn_blocking(|| SharedCluster::get(KEEPER)).await.unwrap();
        Self { shared, prefix: format!("{:016x}:", fastrand::u64(..)) }
    }

    async fn session(&self) -> Arc<Session> {
        let ports = self.shared.ports();
        let nodes = ports.map(|port| RedisAddress::Tcp("127.0.0.1".into(), port)).collect();
        let config = RedisConfig::cluster(nodes).prefix(&self.prefix);
        let store = RedisStore::connect(config).await.unwrap();
        Arc::new(Session::new(Arc::new(store), || {}))
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?prefix={}", self.shared.url(), self.prefix))
    }

    /// Redis cannot know that a process is dead.
    fn sees_death(&self) -> bool {
        false
    }

    /// As on one server.
    async fn write_record(&self, name: &LockName, text: &str) -> bool {
        let key = format!("{{{}{name}}}:r", self.prefix);
        Record::from_json(text).is_err() && self.shared.ask(&["HSET", &key, "n", text]) == "0"
    }
}

sprag_testkit::conformance!(Cluster);

process_conformance!(processes, Cluster, TAKER);

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_of_all_locks_is_one_in_a_cluster() {
    if Cluster::skipped() {
        return;
    }
    let cluster = Cluster::fresh().await;
    let store = cluster.store().await;
    let client = Client::new(Arc::clone(&store));
    for number in 0..50 {
        let guard = client.lock(format!("{number}")).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let told = store.audit(&AuditQuery::default()).await.unwrap();
    assert_eq!(told.len(), 100);
    assert!(told.is_sorted_by_key(|entry| entry.sequence));
    let one = Some(LockName::new("7").unwrap());
    let query = AuditQuery { name: one, ..Default::default() };
    assert_eq!(store.audit(&query).await.unwrap().len(), 2);
    assert!(store.list(&Listing::default()).await.unwrap().locks.is_empty());
}
