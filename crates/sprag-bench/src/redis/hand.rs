//! What can be sent by hand with the redis crate: the least that a lock, a lock with a fence and a
//! fair hand-over can cost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;

use crate::server::locker::{Locker, Stopwatch, TTL_MS, left};
use crate::visits::Visit;

/// Frees the key if it is ours.
const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0";
/// Takes the key, with a fence that grows over lost data too.
const FENCED: &str =
    "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local fence = math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[2], string.format('%.0f', fence))
return fence";

pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    // A waiter waits as long as it takes.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// `SET NX PX` and compare-and-delete, with or without a fence.
#[derive(Clone)]
pub(crate) struct ByHand {
    connection: MultiplexedConnection,
    free: String,
    fenced: Option<String>,
    token: u64,
}

impl ByHand {
    pub(crate) async fn new(url: &str, fenced: bool) -> Result<Self> {
        let mut connection = connect(url).await?;
        let mut load = async |script| {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await
        };
        let free = load(FREE).await?;
        let fenced = if fenced { Some(load(FENCED).await?) } else { None };
        Ok(Self { connection, free, fenced, token: 0 })
    }
}

#[async_trait]
impl Locker for ByHand {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        self.token += 1;
        let token = format!("{:032}", self.token);
        let connection = &mut self.connection;
        match &self.fenced {
            Some(digest) => {
                let mut call = redis::cmd("EVALSHA");
                let call = call.arg(digest).arg(2).arg(lock).arg(format!("{{{lock}}}:f"));
                let fence: u64 = call.arg(&token).arg(TTL_MS).query_async(connection).await?;
                ensure!(fence > 0, "somebody else has {lock}");
            }
            None => {
                let mut call = redis::cmd("SET");
                let call = call.arg(lock).arg(&token).arg("NX").arg("PX").arg(TTL_MS);
                let done: Option<String> = call.query_async(connection).await?;
                done.with_context(|| format!("somebody else has {lock}"))?;
            }
        }
        let visit = watch.stay(stay).await;
        let mut call = redis::cmd("EVALSHA");
        let call = call.arg(&self.free).arg(1).arg(lock).arg(&token);
        let freed: u64 = call.query_async(connection).await?;
        ensure!(freed == 1, "{lock} was lost");
        Ok(left(visit))
    }
}

/// A token in a list: the least that a fair hand-over can cost.
pub(crate) struct Token {
    connection: MultiplexedConnection,
}

impl Token {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        Ok(Self { connection: connect(url).await? })
    }

    /// Puts the token there, once.
    pub(crate) async fn put(&mut self, lock: &str) -> Result<()> {
        let mut call = redis::pipe();
        call.del(lock).ignore().rpush(lock, 1).ignore();
        Ok(call.query_async(&mut self.connection).await?)
    }
}

#[async_trait]
impl Locker for Token {
    async fn visit(&mut self, lock: &str, stay: Duration) -> Result<Visit> {
        let watch = Stopwatch::start();
        let mut call = redis::cmd("BLPOP");
        let call = call.arg(lock).arg(0);
        call.query_async::<()>(&mut self.connection).await?;
        let visit = watch.stay(stay).await;
        let mut call = redis::cmd("RPUSH");
        call.arg(lock).arg(1).query_async::<()>(&mut self.connection).await?;
        Ok(left(visit))
    }
}
