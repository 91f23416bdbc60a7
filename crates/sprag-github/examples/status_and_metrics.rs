//! Who has an issue, and how a manager fares.

use sprag_core::Result;
use sprag_github::{LockManager, LockManagerConfig};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let lock_manager = LockManager::new(LockManagerConfig { github_repo, ..Default::default() })?;
    println!("{}\n{}", status(&lock_manager, 123).await?, metrics(&lock_manager));
    Ok(())
}

/// Who has an issue, in words.
pub(crate) async fn status(lock_manager: &LockManager, issue: u64) -> Result<String> {
    let status = lock_manager.get_lock_status(issue).await?;
    if !status.is_locked {
        return Ok("Issue is unlocked".to_owned());
    }
    let lock = status.metadata.unwrap_or_default().lock;
    Ok(format!(
        "Locked by: {}\nWorker: {}\nSince: {}\nLast heartbeat: {}",
        status.assignee.unwrap_or_default(),
        lock.worker_id,
        lock.claimed_at,
        lock.heartbeat_last,
    ))
}

/// What the manager did, in words.
pub(crate) fn metrics(lock_manager: &LockManager) -> String {
    let metrics = lock_manager.get_metrics();
    format!(
        "Acquisitions: {}\nReleases: {}\nConflicts: {}\nAvg Time: {}ms\nFailures: {}\nStale          Claimed: {}",
        metrics.total_acquisitions,
        metrics.total_releases,
        metrics.total_conflicts,
        metrics.average_acquisition_time_ms,
        metrics.failed_acquisitions,
        metrics.stale_locks_claimed,
    )
}
