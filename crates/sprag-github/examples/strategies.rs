//! What to do about an issue that is locked: give up at once, or take it from a dead worker.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use sprag_core::{Result, TaskInfo};
use sprag_github::{
    AcquireOptions, AcquireResult, ConflictStrategy, LockManager, LockManagerConfig,
};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let config = LockManagerConfig { github_repo, ..Default::default() };
    let [fast, steal] = run(&LockManager::new(config)?, 123).await?;
    println!("fail fast: {fast:?}\nsteal stale: {steal:?}");
    Ok(())
}

fn options(conflict_strategy: ConflictStrategy) -> AcquireOptions {
    let complexity = Some(3);
    let estimated_duration = Some("20min".into());
    AcquireOptions {
        worker_id: "worker-1".into(),
        node_id: "node-abc".into(),
        task_info: Some(TaskInfo { complexity, estimated_duration, ..Default::default() }),
        conflict_strategy,
    }
}

/// What came of both.
pub(crate) async fn run(lock_manager: &LockManager, issue: u64) -> Result<[AcquireResult; 2]> {
    // Fail fast if locked.
    let fast = lock_manager.acquire_lock(issue, options(ConflictStrategy::FailFast)).await?;
    if fast.success {
        lock_manager.release_lock(issue, "worker-1").await?;
    }
    // Steal stale locks. A lock whose holder is alive is waited for instead.
    let steal = lock_manager.acquire_lock(issue, options(ConflictStrategy::StealStale)).await?;
    if steal.success {
        lock_manager.release_lock(issue, "worker-1").await?;
    }
    Ok([fast, steal])
}
