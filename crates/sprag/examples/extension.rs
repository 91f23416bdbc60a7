//! Keeps a lock through work that takes longer than its TTL.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag::{DistributedLock, Locks};

const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells how many phases were done under one lock.
pub(crate) async fn run(url: &str) -> anyhow::Result<u32> {
    let lock = Locks::open(url)?;
    let mut guard = lock.acquire("long_operation", TTL).await?;
    let fence = guard.fence();

    let mut done = 0;
    for phase in 0..6 {
        perform_work_phase(phase).await;
        done += 1;
        // Sets the TTL anew, before it ends. If the lock is lost this is an error: stop.
        lock.extend(&mut guard, TTL).await?;
    }

    // It is the same lock all the time, which a new grant would not be.
    assert_eq!(guard.fence(), fence);
    lock.release(guard).await?;
    println!("{done} phases under one lock with fence {fence}");
    Ok(done)
}

async fn perform_work_phase(phase: u32) {
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("phase {phase} is done");
}
