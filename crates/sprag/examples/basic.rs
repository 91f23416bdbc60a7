//! Takes a lock, works under it and lets it go.
//!
//! The store is a file in a temporary folder. To see two processes exclude each other, give both
//! the same store: `cargo run -p sprag --example basic -- sqlite:/tmp/locks.db`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag::{DistributedLock, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let fresh = format!("sqlite:{}/locks.db", folder.path().display());
    run(&std::env::args().nth(1).unwrap_or(fresh)).await?;
    Ok(())
}

/// Tells whether others saw the lock while it was held, and after it was let go.
pub(crate) async fn run(url: &str) -> anyhow::Result<(bool, bool)> {
    let lock = Locks::open(url)?;

    // Waits until it is available.
    let guard = lock.acquire("my_resource", Duration::from_secs(30)).await?;
    println!("acquired {} with fence {}", guard.name(), guard.fence());

    // Only one process is in here at a time. The others see it as locked.
    println!("performing critical operation...");
    let others = Locks::open(url)?;
    let during = others.is_locked("my_resource").await?;
    println!("locked for the others: {during}");

    // Dropping the guard would do as well; this waits until it is done, and tells if the lock
    // was lost meanwhile.
    lock.release(guard).await?;
    let after = others.is_locked("my_resource").await?;
    println!("locked after the release: {after}");
    Ok((during, after))
}
