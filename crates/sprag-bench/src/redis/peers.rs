//! Other Rust libraries, each behind [`Locker`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use distributed_lock_core::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::RedisLockProvider;
use redis_of_redis_lock::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use crate::server::locker::{Locker, Stopwatch, TTL, TTL_MS, left};
use crate::visits::Visit;

/// A library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Rslock,
    RedisLock,
    DistributedLock,
    Redlock,
}

impl Peer {
    pub(crate) const ALL: [Self; 4] =
        [Self::Rslock, Self::RedisLock, Self::DistributedLock, Self::Redlock];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rslock => "rslock",
            Self::RedisLock => "redis-lock",
            Self::DistributedLock => "distributed-lock",
            Self::Redlock => "redlock",
        }
    }
}

/// Connects to one server, or to several as Redlock does.
pub(crate) async fn connect(peer: Peer, urls: &[String]) -> Result<Box<dyn Locker>> {
    Ok(match peer {
        Peer::Rslock => Box::new(Rslock(rslock::LockManager::new(urls.to_vec()))),
        Peer::RedisLock => {
            let mut connections = Vec::new();
            for url in urls {
                let client = redis_of_redis_lock::Client::open(url.as_str())?;
                let connection = client.get_multiplexed_async_connection().await?;
                connections.push(Arc::new(Mutex::new(connection)));
            }
            Box::new(RedisLock(connections))
        }
        Peer::DistributedLock => {
            let builder = RedisLockProvider::builder().urls(urls).expiry(TTL);
            let builder = builder.extension_cadence(TTL / 3);
            Box::new(DistributedLock(builder.build().await.map_err(said)?))
        }
        Peer::Redlock => Box::new(Redlock(redlock::RedLock::new(urls.to_vec()))),
    })
}

fn said(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

struct Rslock(rslock::LockManager);

#[async_trait]
impl Locker for Rslock {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let held = self.0.acquire_no_guard(lock, TTL).await.map_err(said)?;
        let visit = watch.stay(stay).await;
        self.0.unlock(&held).await;
        Ok(left(visit))
    }
}

struct RedisLock(Vec<Arc<Mutex<MultiplexedConnection>>>);

#[async_trait]
impl Locker for RedisLock {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let options = redis_lock::LockAcrossOptions {
            ttl: TTL,
            duration: TTL,
            ..redis_lock::LockAcrossOptions::default()
        };
        let inside = async move { watch.stay(stay).await };
        let visit = redis_lock::lock_across(&self.0, lock, inside, options).await.map_err(said)?;
        Ok(left(visit))
    }
}

struct DistributedLock(RedisLockProvider);

#[async_trait]
impl Locker for DistributedLock {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let held = self.0.create_lock(lock).acquire(Some(TTL)).await.map_err(said)?;
        let visit = watch.stay(stay).await;
        held.release().await.map_err(said)?;
        Ok(left(visit))
    }
}

/// It blocks its thread, which costs nobody anything while it is alone.
struct Redlock(redlock::RedLock);

#[async_trait]
impl Locker for Redlock {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let held = self.0.acquire(lock.as_bytes(), TTL_MS).map_err(said)?;
        let visit = watch.stay(stay).await;
        drop(held);
        Ok(left(visit))
    }
}
