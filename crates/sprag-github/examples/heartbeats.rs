//! Heartbeats of a held lock: in a ref every 30 s, which decides; in the one comment now and then.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag_core::Result;
use sprag_github::{AcquireOptions, LockManager, LockManagerConfig, LockStatus};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let config = LockManagerConfig {
        github_repo,
        heartbeat_interval_ms: 30_000, // 30 seconds
        lock_timeout_ms: 300_000,      // 5 minutes
        ..Default::default()
    };
    let watcher = LockManager::new(config.clone())?;
    let status = run(&LockManager::new(config)?, &watcher, 123, Duration::from_secs(90)).await?;
    println!("silent for {:?}, stale: {}", status.silent_for, watcher.is_lock_stale(&status));
    Ok(())
}

/// Holds an issue for a while, and tells what somebody else sees of it then.
pub(crate) async fn run(
    holder: &LockManager,
    watcher: &LockManager,
    issue: u64,
    work: Duration,
) -> Result<LockStatus> {
    let options = AcquireOptions { worker_id: "worker-1".into(), ..Default::default() };
    holder.acquire_lock(issue, options).await?;
    // Whoever looks twice sees whether there was a heartbeat between the two.
    watcher.get_lock_status(issue).await?;
    tokio::time::sleep(work).await;
    let status = watcher.get_lock_status(issue).await?;
    holder.release_lock(issue, "worker-1").await?;
    Ok(status)
}
