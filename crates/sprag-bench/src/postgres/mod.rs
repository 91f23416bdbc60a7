//! The PostgreSQL store against what can be sent by hand and against sqlx, on a server that is
//! started for it.

mod advisory;
mod crowd;
mod hand;
mod held;
mod own;
mod uncontended;

use std::path::Path;

use anyhow::Result;
use sprag_testkit::postgres_server::PostgresServer;

use crate::options::Options;
use crate::report::{Page, Row};

pub(crate) fn measure(_: &Path, options: &Options) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // As it comes, so commits wait for the disk; the table has room for many locks.
        let server = PostgresServer::start(&["-c", "max_locks_per_transaction=128"]).await;
        let place = Place { server };
        let mut rows = Vec::new();
        if options.wants("uncontended") {
            rows.extend(uncontended::measure(&place, options).await?);
        }
        if options.wants("crowd") {
            rows.extend(crowd::measure(&place, options).await?);
        }
        if options.wants("held") {
            rows.extend(held::measure(&place, options).await?);
        }
        Ok(rows)
    })
}

/// The server, as all sides of the comparison see it: by TCP, without encryption.
struct Place {
    server: PostgresServer,
}

impl Place {
    /// For those who know nothing of sprag.
    fn plain(&self) -> String {
        format!("{}?sslmode=disable", self.server.tcp_url("postgres"))
    }

    /// For sprag. A namespace has one mode.
    fn with_mode(&self, mode: &str) -> String {
        format!("{}&mode={mode}&namespace={mode}&max_locks=20000", self.plain())
    }

    /// How many clients are connected, without the one who asks.
    fn clients(&self) -> usize {
        let count =
            "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'";
        self.server.sql("postgres", count).parse().unwrap_or(usize::MAX)
    }
}

pub(crate) const PAGE: Page =
    Page { title: "PostgreSQL benchmark", command: "cargo xtask bench postgres", notes: NOTES };

const NOTES: &str = "
What is measured, all of it on one machine over TCP, with the PostgreSQL of the distribution as it
comes: commits wait for the disk.

- *uncontended*: one task acquires and releases one lock, over and over. All take turns of 50 ms in
  any order, 15 of them for each figure, of which the median counts. *sqlx* is its
  `PgAdvisoryLock` on one connection, which tells nobody who holds the lock and has no fence. *The
  same statements* are those of our leases, with the trail and all they keep about a holder, sent with
  tokio-postgres. The *bare* ones are one upsert with a fence that is on the disk before it is
  answered, and one update that is not; they write no trail and know no queue.
- *drain*: 64 tasks of one client want the same lock, each enters once and sleeps 1 ms inside. The
  ideal is the time that somebody was inside. *pg_advisory_lock* blocks, on a connection for each task.
  *A hand-over by hand* is a queue in a table: one statement takes the lock or a place in the queue,
  one passes it on, is on the disk, and wakes who is next; two connections in all.
- *hand-off*: from the end of one task's section to the begin of the next one's.
- *closed loop*: the same tasks enter again and again for some seconds.
- *held*: one process holds 10,000 locks for 30 s each and renews them; counted from the second renewal on,
  from which on they are renewed together.
";
