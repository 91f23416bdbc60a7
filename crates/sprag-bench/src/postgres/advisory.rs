//! Session locks without sprag: sqlx's, and the blocking function of the server.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use sqlx_core::connection::Connection as _;
use sqlx_postgres::{PgAdvisoryLock, PgConnection};
use tokio_postgres::{Client, Statement};

use super::hand::connect;
use crate::server::locker::{Locker, Stopwatch, left};
use crate::visits::Visit;

/// sqlx's lock on one connection.
pub(crate) struct Sqlx {
    connection: Option<PgConnection>,
}

impl Sqlx {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        Ok(Self { connection: Some(PgConnection::connect(url).await?) })
    }
}

#[async_trait]
impl Locker for Sqlx {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let connection = self.connection.take().ok_or_else(|| anyhow::anyhow!("it is lost"))?;
        let lock = PgAdvisoryLock::new(lock);
        let held = lock.acquire(connection).await?;
        let visit = watch.stay(stay).await;
        self.connection = Some(held.release_now().await?);
        Ok(left(visit))
    }
}

/// `pg_advisory_lock`, which blocks its connection.
pub(crate) struct Blocking {
    client: Client,
    take: Statement,
    free: Statement,
}

impl Blocking {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let take = client.prepare("SELECT pg_advisory_lock(hashtext($1))").await?;
        let free = client.prepare("SELECT pg_advisory_unlock(hashtext($1))").await?;
        Ok(Self { client, take, free })
    }
}

#[async_trait]
impl Locker for Blocking {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.client.execute(&self.take, &[&lock]).await?;
        let visit = watch.stay(stay).await;
        self.client.execute(&self.free, &[&lock]).await?;
        Ok(left(visit))
    }
}
