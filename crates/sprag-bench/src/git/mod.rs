//! Locks on a git remote against the git commands that do the same by hand.

mod batch;
mod by_hand;
mod claims;
mod idle;
mod many_refs;
mod work;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use sprag_core::Client;
use sprag_core::clock::{BootClock, Clock as _};
use sprag_testkit::git_server::GitServer;

use crate::options::Options;
use crate::report::{Page, Row};

const TTL: Duration = Duration::from_secs(300);

pub(crate) fn measure(_: &std::path::Path, options: &Options) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut rows = Vec::new();
        if options.wants("claims") {
            rows.extend(claims::measure(options).await?);
        }
        if options.wants("batch") {
            rows.push(batch::measure(options).await?);
        }
        if options.wants("refs") {
            rows.push(many_refs::measure(options).await?);
        }
        if options.wants("work") {
            rows.push(work::measure(options).await?);
        }
        if options.wants("idle") {
            rows.push(idle::measure(options).await?);
        }
        Ok(rows)
    })
}

fn client(server: &GitServer) -> Result<Client> {
    Ok(Client::new(Arc::new(sprag_git::open(server.config())?)))
}

/// How many seconds it takes.
async fn seconds<T>(work: impl Future<Output = Result<T>>) -> Result<f64> {
    let started = BootClock.now();
    work.await?;
    Ok(BootClock.now().since(started).as_secs_f64())
}

pub(crate) const PAGE: Page =
    Page { title: "Git benchmark", command: "cargo xtask bench git", notes: NOTES };

const NOTES: &str = "
What is measured, all of it on one machine:

- *claim + release*: one task takes and releases one lock on a bare repository, by its path and over
  HTTP. *By hand* are the git commands that are needed for the same: `git ls-remote` to see the lock,
  `git commit-tree` for its record and for the session, one `git push --atomic` with leases for both,
  and the same without the look to release it.
- *100 claims*: asked for at once, which makes one or two pushes, against one after the other.
- *100,000 references*: the state of one lock on a server with so many, over HTTP, that was not seen
  before: where the reference points and what the record is. Against `git ls-remote`, which lists them
  all and tells no record.
- *work next*: one step of one item among 1,000, with 10,000 files beside them: found, claimed, worktree,
  moved, merged, pushed, cleared up. *By hand* are the git commands for the same.
- *idle*: pushes of a process that holds ten locks, per interval of its signs of life.
";
