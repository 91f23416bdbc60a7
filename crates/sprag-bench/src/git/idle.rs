//! What a process costs that holds locks and does nothing.

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use sprag_core::clock::{BootClock, Clock as _};
use sprag_testkit::git_server::{GitServer, Transport};

use super::client;
use crate::options::Options;
use crate::report::{Goal, Row, progress};

const TTL: Duration = Duration::from_secs(6);
const LOCKS: usize = 10;

pub(crate) async fn measure(options: &Options) -> Result<Row> {
    let server = GitServer::start(Transport::Http).await;
    let client = client(&server)?;
    let locks = (0..LOCKS).map(|number| client.lock(format!("idle-{number}")).ttl(TTL).acquire());
    let held = try_join_all(locks).await?;
    let pushes = || {
        let is_push = |request: &&String| request.ends_with("POST /locks.git/git-receive-pack");
        server.http().requests().iter().filter(is_push).count()
    };
    let (before, started) = (pushes(), BootClock.now());
    let length = if options.pairs > 1 { TTL * 5 } else { TTL };
    tokio::time::sleep(length).await;
    let intervals = BootClock.now().since(started).as_secs_f64() / (TTL.as_secs_f64() / 3.0);
    let pushed = pushes() - before;
    anyhow::ensure!(held.iter().all(sprag_core::LockGuard::is_valid), "a lock was lost");
    try_join_all(held.into_iter().map(sprag_core::LockGuard::release)).await?;
    progress(&format!("idle: {pushed} pushes in {intervals:.1} intervals"));
    let what = "idle holder of 10 locks, pushes per interval";
    // One more or less fits into the time by chance.
    let figure = (pushed as f64 - 1.0).max(0.0) / intervals;
    Ok(Row::absolute(what, &[figure], String::new(), Some(Goal::AtMost(1.0))))
}
