//! A worker that processes issues, and always releases the lock, whatever its task does.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use sprag_core::{Result, TaskInfo};
use sprag_github::{AcquireOptions, LockManager, LockManagerConfig};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let config = LockManagerConfig { github_repo, ..Default::default() };
    let worker = Worker::new("worker-1", LockManager::new(config)?);
    worker.process_task(123, async { println!("working") }).await.map(drop)
}

/// One worker of many.
pub(crate) struct Worker {
    worker_id: String,
    lock_manager: LockManager,
}

impl Worker {
    pub(crate) fn new(worker_id: &str, lock_manager: LockManager) -> Self {
        Self { worker_id: worker_id.to_owned(), lock_manager }
    }

    /// What the task came to; `None` if somebody else is at it.
    pub(crate) async fn process_task<T>(
        &self,
        issue: u64,
        execute_task: impl Future<Output = T> + Send,
    ) -> Result<Option<T>>
    where
        T: Send,
    {
        let estimated_duration = Some("30min".into());
        let task_info = TaskInfo { complexity: Some(3), estimated_duration, ..Default::default() };
        let options = AcquireOptions {
            worker_id: self.worker_id.clone(),
            node_id: "node-abc".into(),
            task_info: Some(task_info),
            ..Default::default()
        };
        let lock = self.lock_manager.acquire_lock(issue, options).await?;
        if !lock.success {
            println!("Task already being processed by another worker");
            return Ok(None);
        }
        let done = execute_task.await;
        // Ask before anything that must not be done twice: the lock may have been lost meanwhile.
        let valid = self.lock_manager.ensure_valid(issue);
        // Always release the lock. If the task panics it ends with the manager.
        self.lock_manager.release_lock(issue, &self.worker_id).await?;
        valid.map(|()| Some(done))
    }
}
