//! [`Subject`]: what is measured, sprag's client over a server.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use sprag::Locks;

use super::locker::{Locker, Stopwatch, TTL, left};
use crate::visits::Visit;

/// One client, which all its clones share.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) locks: Locks,
}

impl Subject {
    pub(crate) fn open(url: &str) -> Result<Self> {
        Ok(Self { locks: Locks::open(url)? })
    }
}

#[async_trait]
impl Locker for Subject {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let guard = self.locks.lock(lock).ttl(TTL).acquire().await?;
        let visit = watch.stay(stay).await;
        guard.release().await?;
        Ok(left(visit))
    }
}
