//! One process that holds many locks: what it costs to keep them.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sprag_testkit::redis_server::RedisServer;

use crate::now_nanos;
use crate::options::Options;
use crate::report::{Goal, Row, progress};
use crate::server::cpu;
use crate::server::locker::TTL;
use crate::server::subject::Subject;

const LOCKS: usize = 10_000;

pub(crate) async fn measure(server: &RedisServer, options: &Options) -> Result<Vec<Row>> {
    let before = clients(server);
    let subject = Subject::open(&super::url(server))?;
    let locks = stream::iter(0..LOCKS).map(|number| {
        let request = subject.locks.lock(format!("bench:held:{number}")).ttl(TTL);
        request.acquire()
    });
    let guards: Vec<_> = locks.buffered(64).try_collect().await?;
    progress(&format!("{} locks are held", guards.len()));
    // Three renewals of all of them.
    let length = if options.pairs > 1 { TTL } else { TTL / 10 };
    let (start, used) = (now_nanos(), cpu()?);
    tokio::time::sleep(length).await;
    let share = (cpu()? - used).as_secs_f64() / ((now_nanos() - start) as f64 / 1e9) * 100.0;
    let connections = (clients(server) - before) as f64;
    let lost: Vec<_> = guards.iter().filter_map(|guard| guard.ensure_valid().err()).collect();
    ensure!(lost.is_empty(), "{} of {LOCKS} locks were lost: {}", lost.len(), lost[0]);
    let releases = stream::iter(guards).map(|guard| guard.release());
    releases.buffered(64).try_collect::<Vec<_>>().await?;
    Ok(vec![
        Row::absolute(
            "10,000 held locks, % of a core to renew them",
            &[share],
            String::new(),
            Some(Goal::AtMost(5.0)),
        ),
        Row::absolute("… connections", &[connections], String::new(), Some(Goal::AtMost(2.0))),
    ])
}

fn clients(server: &RedisServer) -> usize {
    server.ask(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("addr=")).count()
}
