//! A Redis server and the network before it, broken on purpose. Each test names its scenario of
//! `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clogged;
mod damage;
mod memory;
mod passing;
mod replies;
mod trouble;
mod wakeups;

use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Store};
use sprag_testkit::proxy::Proxy;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};

/// A lease that ends within a test. Long enough for ten requests under load.
const SHORT: Duration = Duration::from_millis(900);

/// How long our clients wait for an answer in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A server, and a network before it that can be broken.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    /// A way past the proxy, to look at locks.
    store: Arc<dyn Store>,
}

impl Scene {
    /// Nothing if tests with Redis were declined.
    async fn new() -> Option<Self> {
        Self::with(RedisSetup::new()).await
    }

    async fn with(setup: RedisSetup) -> Option<Self> {
        if RedisServer::skipped() {
            return None;
        }
        let server = setup.tcp().start().await;
        let proxy = Proxy::start(server.address());
        let store = sprag::open(&server.url()).unwrap();
        Some(Self { server, proxy, store })
    }

    /// The way through the proxy, for clients that forgive a restart.
    fn url(&self) -> String {
        let timeout = TIMEOUT.as_millis();
        let address = self.proxy.address();
        format!("redis://{address}?timeout_ms={timeout}&restart_quarantine=never")
    }

    /// A client behind the proxy.
    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
    }

    /// A client that does not go through the proxy.
    fn direct(&self) -> Locks {
        Locks::open(&self.server.url()).unwrap()
    }

    /// The connection on which the last client behind the proxy is woken.
    fn subscriber(&self) -> Option<usize> {
        let captured = self.proxy.captured();
        captured.iter().rev().find(|request| request.contains("SUBSCRIBE")).map(|found| found.line)
    }
}
