//! The statements of our leases, sent by hand.

use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::hand::connect;
use crate::server::locker::{Locker, Stopwatch, left};
use crate::visits::Visit;

const SPACE: &str = "by hand";
const TAKE: &str = "SELECT sprag.take_v1($1, $2, $3, $4, $5, $6, $7, NULL)";
const LEAVE: &str = "SELECT sprag.leave_v1($1, $2, $3, $4, NULL)";
/// Where nobody listens.
const CHANNEL: &str = "sprag_by_hand";
const TTL_MS: i64 = 30_000;
/// Later than any request.
const NEVER_LATE: i64 = (1 << 53) - 1;

/// One call of each, on one connection. The schema is there already.
pub(crate) struct OwnStatements {
    client: Client,
    take: Statement,
    leave: Statement,
    number: u64,
}

impl OwnStatements {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let client = connect(url).await?;
        let claim = "INSERT INTO sprag.namespace VALUES ($1, 'lease') ON CONFLICT DO NOTHING";
        client.execute(claim, &[&SPACE]).await?;
        let (take, leave) = (client.prepare(TAKE).await?, client.prepare(LEAVE).await?);
        Ok(Self { client, take, leave, number: 0 })
    }
}

#[async_trait]
impl Locker for OwnStatements {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.number += 1;
        let lease = format!("{:032x}", self.number);
        let command = format!(
            r#"{{"do":"acquire","lease":"{lease}","session":"{lease}","party":"{lease}","mode":"exclusive","ttl_ms":{TTL_MS},"queue":true,"priority":0,"holder":{{"worker_id":"by hand","node_id":"bench","since_unix_ms":1790000000000}},"max_waiters":4096,"resize":false}}"#
        );
        let (channel, ttl, limit) = (CHANNEL, TTL_MS, NEVER_LATE);
        let wish: [&(dyn ToSql + Sync); 7] =
            [&SPACE, &lock, &command, &lease, &ttl, &limit, &channel];
        let granted: String = self.client.query_one(&self.take, &wish).await?.get(0);
        ensure!(!granted.starts_with('{'), "not the short way: {granted}");
        let visit = watch.stay(stay).await;
        let end: [&(dyn ToSql + Sync); 4] = [&SPACE, &lock, &lease, &channel];
        let freed: String = self.client.query_one(&self.leave, &end).await?.get(0);
        ensure!(!freed.starts_with('{'), "not the short way: {freed}");
        Ok(left(visit))
    }
}
