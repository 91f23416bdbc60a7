//! What to do when a lock cannot be had: wait for the rate limit, take over a stale one, or stop.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag_core::Result;
use sprag_github::{AcquireOptions, ConflictStrategy, LockManager, LockManagerConfig};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let config = LockManagerConfig { github_repo, ..Default::default() };
    let next = run(&LockManager::new(config)?, 123, "worker-1").await;
    if let Next::Later(pause) = next {
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Work: it is locked.
    Work,
    /// Wait and retry later.
    Later(Duration),
    /// Somebody who is alive has it.
    AnotherIssue,
    /// Something is wrong that no retry changes.
    Stop(String),
}

/// Locks an issue, or says what to do next.
pub(crate) async fn run(lock_manager: &LockManager, issue: u64, worker_id: &str) -> Next {
    let options = AcquireOptions {
        worker_id: worker_id.to_owned(),
        conflict_strategy: ConflictStrategy::FailFast,
        ..Default::default()
    };
    let result = match lock_manager.acquire_lock(issue, options.clone()).await {
        Ok(result) => result,
        Err(error) => {
            println!("Lock operation failed: {error}");
            return if error.is_retryable() {
                Next::Later(Duration::from_secs(60))
            } else {
                Next::Stop(error.to_string())
            };
        }
    };
    match result.error {
        None => Next::Work,
        Some(error) if error.contains("rate limit") => Next::Later(Duration::from_secs(60)),
        Some(_already_locked) => match lock_manager.get_lock_status(issue).await {
            Ok(status) if lock_manager.is_lock_stale(&status) => {
                let conflict_strategy = ConflictStrategy::StealStale;
                let steal = AcquireOptions { conflict_strategy, ..options };
                match lock_manager.acquire_lock(issue, steal).await {
                    Ok(result) if result.success => Next::Work,
                    _ => Next::AnotherIssue,
                }
            }
            _ => Next::AnotherIssue,
        },
    }
}
