//! Locks an issue while a task is executed: all settings, all that is shown, and the release.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use sprag_core::{Result, TaskInfo};
use sprag_github::{AcquireOptions, LockManager, LockManagerConfig};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    run(LockManagerConfig { github_repo, ..Default::default() }, 123).await.map(drop)
}

/// Tells whether it got the lock.
pub(crate) async fn run(config: LockManagerConfig, issue: u64) -> Result<bool> {
    let lock_manager = LockManager::new(LockManagerConfig {
        max_retries: 5,
        initial_backoff_ms: 1_000,
        max_backoff_ms: 16_000,
        heartbeat_interval_ms: 30_000,
        lock_timeout_ms: 300_000,
        ..config
    })?;
    let options = AcquireOptions {
        worker_id: "worker-local-1".into(),
        node_id: "node-abc123".into(),
        task_info: Some(TaskInfo {
            complexity: Some(5),
            estimated_duration: Some("45min".into()),
            task_type: Some("bug-fix".into()),
            priority: Some("high".into()),
        }),
        ..Default::default()
    };
    let result = lock_manager.acquire_lock(issue, options).await?;
    if !result.success {
        println!("Failed to acquire lock: {}", result.error.unwrap_or_default());
        return Ok(false);
    }
    println!("Lock acquired on issue #{}", result.lock_id.unwrap_or_default());

    // Execute task...

    lock_manager.release_lock(issue, "worker-local-1").await?;
    Ok(true)
}
