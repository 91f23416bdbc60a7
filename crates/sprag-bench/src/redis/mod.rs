//! The Redis store against what can be sent by hand and against other libraries, on servers that are
//! started for it.

mod crowd;
mod foreign;
mod hand;
mod held;
mod peers;
mod quorum;
mod scripts;
mod tasks;
mod uncontended;

use std::path::Path;

use anyhow::Result;
use sprag_testkit::redis_server::{RedisServer, RedisSetup};

use crate::options::Options;
use crate::report::{Page, Row};

pub(crate) fn measure(folder: &Path, options: &Options) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = RedisSetup::new().tcp().start().await;
        let url = url(&server);
        let mut rows = Vec::new();
        if options.wants("uncontended") {
            rows.extend(uncontended::measure(&url, folder, options).await?);
        }
        if options.wants("tasks") {
            rows.extend(tasks::measure(&url, options).await?);
        }
        if options.wants("crowd") {
            rows.extend(crowd::measure(&server, options).await?);
        }
        if options.wants("quorum") {
            rows.extend(quorum::measure(options).await?);
        }
        if options.wants("held") {
            rows.extend(held::measure(&server, options).await?);
        }
        Ok(rows)
    })
}

/// How every client opens it: by TCP, as from another machine.
fn url(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

pub(crate) const PAGE: Page =
    Page { title: "Redis benchmark", command: "cargo xtask bench redis", notes: NOTES };

const NOTES: &str = "
What is measured, all of it on one machine over TCP, with redis-server from the distribution:

- *uncontended*: one task acquires and releases one lock, over and over. All take turns of 50 ms in
  any order, 15 of them for each figure, of which the median counts. *Bare* is `SET NX PX` and a
  compare-and-delete script, *fenced* does the same with a fence in the first script; both are sent
  by hand with the redis crate, and tell nobody who holds the lock. Libraries in other languages run
  in processes of their own.
- *64 tasks*: each with a lock of its own, all over one client; by hand over one connection. The other
  libraries that can do this have no fences, and a client for each task.
- *drain*: 64 tasks of one client want the same lock, each enters once and sleeps 1 ms inside. The
  ideal is 64 ms, or what was really spent inside: timers are late. *64 clients* are as many processes
  would be, each with connections of its own. *BLPOP* passes a token in a list from one connection to the next, which is the
  least that a fair hand-over can cost.
- *hand-off*: from the end of one task's section to the begin of the next one's.
- *closed loop*: the same tasks enter again and again for some seconds.
- *Redlock*: five servers, in such turns as well. *Hung* means that one of them was stopped with SIGSTOP.
- *held*: one process holds 10,000 locks for 30 s each and renews them.
";
