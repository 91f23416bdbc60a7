//! [`Scripts`]: the two scripts of sprag, sent by hand with the redis crate. What is between this and
//! sprag is the client: waiting, renewing, guards, and its own connection.

use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;

use super::hand::connect;
use crate::server::locker::{Locker, Stopwatch, TTL_MS, left};
use crate::visits::Visit;

const LOCK: &str = concat!(
    include_str!("../../../sprag-redis/src/scripts/head.lua"),
    include_str!("../../../sprag-redis/src/scripts/fast.lua"),
    include_str!("../../../sprag-redis/src/scripts/load.lua"),
    include_str!("../../../sprag-redis/src/scripts/lock.lua"),
);
const NEVER_LATE: &str = "9007199254740991";
const WISHES: &str = "exclusive 0 0 0 0 0 4096 no ";

/// Takes and releases as the store does, without the store.
#[derive(Clone)]
pub(crate) struct Scripts {
    connection: MultiplexedConnection,
    digest: String,
    holder: String,
    token: u64,
}

impl Scripts {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let mut connection = connect(url).await?;
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(LOCK).to_owned();
        let digest = load.query_async(&mut connection).await?;
        let about = r#"{"worker_id":"by hand","node_id":"bench","since_unix_ms":1790000000000}"#;
        // No session, a party, a lease that is renewed.
        let holder = format!("{}{:032}0{about}", "-".repeat(32), 1);
        Ok(Self { connection, digest, holder, token: 0 })
    }

    async fn call(&mut self, lock: &str, words: &[&str]) -> Result<u64> {
        let plain = format!("hand:{lock}");
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.digest).arg(7).arg(&plain);
        for end in ["r", "w", "q", "x"] {
            call.arg(format!("{{{plain}}}:{end}"));
        }
        call.arg("{hand:}:trail").arg("{hand:}:names").arg(words);
        let answer: String = call.query_async(&mut self.connection).await?;
        // The short ways answer with a number, the long way, which is the first, does not.
        Ok(answer.parse().unwrap_or(1))
    }
}

#[async_trait]
impl Locker for Scripts {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.token += 1;
        let lease = format!("{:032x}", (u128::from(self.token) << 64) + u128::from(self.token));
        let (holder, ttl) = (self.holder.clone(), TTL_MS.to_string());
        let take = ["take", lock, &lease, &ttl, NEVER_LATE, &holder, WISHES];
        ensure!(self.call(lock, &take).await? > 0, "somebody else has {lock}");
        let visit = watch.stay(stay).await;
        self.call(lock, &["release", lock, &lease]).await?;
        Ok(left(visit))
    }
}
