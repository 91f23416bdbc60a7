//! Redlock with nodes that are down, hang, are slow or forget (F34 of `docs/faults.md`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod down;
mod forgetting;
mod refusals;
mod replies;

use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Store};
use sprag_core::store::Listing;
use sprag_testkit::proxy::Proxy;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};
use sprag_testkit::support::{LONG, eventually, timed};

/// How long a node may take in these tests. Whoever waits for one that hangs needs longer.
const NODE_TIMEOUT: Duration = Duration::from_millis(1000);
/// Well below it: nobody waited.
const AT_ONCE: Duration = Duration::from_millis(600);

struct Scene {
    nodes: Vec<RedisServer>,
    /// The way to each node, if it can be broken.
    proxies: Vec<Proxy>,
    options: &'static str,
}

impl Scene {
    /// Nothing if tests with Redis were declined.
    async fn new(count: usize) -> Option<Self> {
        if RedisServer::skipped() {
            return None;
        }
        Some(Self::of(RedisServer::several(count, &RedisSetup::new().tcp()).await))
    }

    const fn of(nodes: Vec<RedisServer>) -> Self {
        Self { nodes, proxies: Vec::new(), options: "" }
    }

    /// Where the nodes are.
    fn addresses(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(RedisServer::address).collect();
        nodes.join(",")
    }

    fn url(&self) -> String {
        let proxies: Vec<_> = self.proxies.iter().map(Proxy::address).collect();
        let nodes = if proxies.is_empty() { self.addresses() } else { proxies.join(",") };
        let timeout = NODE_TIMEOUT.as_millis();
        format!("redlock://{nodes}?node_timeout_ms={timeout}{}", self.options)
    }

    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
    }

    fn store(&self) -> Arc<dyn Store> {
        sprag::open(&self.url()).unwrap()
    }

    /// On how many of the nodes that run the lock has a key.
    fn keys(&self, lock: &str) -> usize {
        let key = format!("sprag:{lock}");
        let running = self.nodes.iter().filter(|node| node.is_running());
        running.filter(|node| node.ask(&["EXISTS", &key]) == "1").count()
    }

    /// Until all nodes have noted that they voted for "report", and vote by that from now on.
    async fn until_all_go_the_short_way(&self, locks: &Locks) {
        eventually("all nodes have noted it", async || {
            let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
            guard.release().await.unwrap();
            let seen = |node: &RedisServer| node.ask(&["HGET", "{sprag:report}:n", "seen"]);
            self.nodes.iter().all(|node| !seen(node).is_empty())
        })
        .await;
    }
}

/// Takes, extends, looks at, lists, fights for and releases a lock, each at once.
async fn everything_works(locks: &Locks, other: &Locks) {
    let (guard, took) = timed(locks.lock("report").ttl(LONG).acquire()).await;
    let mut guard = guard.unwrap();
    assert!(took < AT_ONCE, "acquired after {took:?}");
    let (extended, took) = timed(guard.extend(LONG)).await;
    extended.unwrap();
    assert!(took < AT_ONCE, "extended after {took:?}");
    let (tried, took) = timed(other.lock("report").try_acquire()).await;
    assert!(tried.unwrap().is_none() && took < AT_ONCE, "refused after {took:?}");
    let view = other.inspect("report").await.unwrap();
    let (listed, took) = timed(other.list(&Listing::default())).await;
    assert_eq!(listed.unwrap().locks.len(), 1);
    assert!(took < AT_ONCE, "listed after {took:?}");
    assert_eq!(view.holders[0].fence, guard.fence());
    // A node whose vote was not needed may have counted further.
    assert!(view.fence >= guard.fence());
    let fence = guard.fence();
    let (released, took) = timed(guard.release()).await;
    released.unwrap();
    assert!(took < AT_ONCE, "released after {took:?}");
    let next = other.lock("report").ttl(LONG).acquire().await.unwrap();
    assert!(next.fence() > fence);
    next.release().await.unwrap();
}
