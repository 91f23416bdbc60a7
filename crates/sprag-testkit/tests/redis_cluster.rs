//! Cases on a Redis Cluster: where all keys of a call have to be in one slot, names are searched
//! for and each lock has a trail of its own. They share one Cluster, each with a prefix of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use sprag::{RedisAddress, RedisConfig, RedisStore};
use sprag_core::store::Listing;
use sprag_core::{AuditQuery, Client, LockName, Store};
use sprag_testkit::cases;
use sprag_testkit::harness::{Harness, Session};
use sprag_testkit::redis_server::{RedisCluster, RedisServer};

struct Prefix {
    nodes: Vec<RedisAddress>,
    prefix: String,
}

impl Prefix {
    async fn connect(&self) -> RedisStore {
        let config = RedisConfig::cluster(self.nodes.clone()).prefix(&self.prefix);
        RedisStore::connect(config).await.unwrap()
    }
}

impl Harness for Prefix {
    async fn fresh() -> Self {
        unreachable!("the Cluster is shared")
    }

    async fn session(&self) -> Arc<Session> {
        Arc::new(Session::new(Arc::new(self.connect().await), || {}))
    }

    fn sees_death(&self) -> bool {
        false
    }
}

macro_rules! run {
    ($nodes:expr, $($group:ident :: $case:ident),* $(,)?) => {$(
        // Shown if it fails.
        println!("{}", stringify!($group::$case));
        let prefix = concat!(stringify!($case), ":").to_owned();
        cases::$group::$case(&Prefix { nodes: $nodes.clone(), prefix }).await;
    )*};
}

async fn on_a_cluster(test: impl AsyncFnOnce(Vec<RedisAddress>)) {
    if RedisServer::skipped() {
        return;
    }
    let mut cluster = RedisCluster::start().await;
    let nodes =
        cluster.nodes().iter().map(|node| RedisAddress::Tcp("127.0.0.1".into(), node.port()));
    test(nodes.collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_spread_over_the_nodes_and_listed_and_told_as_one() {
    on_a_cluster(async |nodes| {
        run!(
            nodes,
            names::lists_come_in_pages,
            names::names_that_look_alike_are_different,
            names::the_longest_names_work,
            audit::an_ordinary_tenure_is_told,
            audit::a_break_is_told,
            audit::the_trail_is_bounded_and_in_order,
            multi::opposite_orders_never_deadlock,
            contention::readers_and_writers_mixed,
            contention::permits_mixed,
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_of_all_locks_is_one_in_a_cluster() {
    on_a_cluster(async |nodes| {
        let prefix = Prefix { nodes, prefix: "trail:".into() };
        let store: Arc<dyn Store> = Arc::new(prefix.connect().await);
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
    })
    .await;
}
