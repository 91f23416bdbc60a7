//! Workers that share a list of tasks; each task is executed once.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sprag::{DistributedLock, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells how often each task was executed.
pub(crate) async fn run(url: &str) -> anyhow::Result<BTreeMap<String, u32>> {
    let executed = Arc::default();
    let mut workers = Vec::new();
    for _ in 0..3 {
        let queue = DistributedTaskQueue {
            lock: Arc::new(Locks::open(url)?),
            queue_name: "mail".into(),
            executed: Arc::clone(&executed),
        };
        workers.push(tokio::spawn(async move {
            let mut claimed = 0;
            for task in 0..8 {
                claimed += u32::from(queue.claim_task(&format!("task-{task}")).await?);
            }
            anyhow::Ok(claimed)
        }));
    }
    for (number, worker) in workers.into_iter().enumerate() {
        println!("worker {number} executed {} tasks", worker.await??);
    }
    let executed = executed.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(executed.clone())
}

struct DistributedTaskQueue {
    lock: Arc<dyn DistributedLock>,
    queue_name: String,
    /// What is done already; in real life a table or a folder that all workers see.
    executed: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl DistributedTaskQueue {
    async fn claim_task(&self, task_id: &str) -> anyhow::Result<bool> {
        let resource = format!("task:{}:{task_id}", self.queue_name);

        let Some(guard) = self.lock.try_acquire(&resource, Duration::from_secs(60)).await? else {
            // Another worker is at it.
            return Ok(false);
        };
        // The lock only says that nobody is at it now. Whether it was done before is looked up
        // under the lock.
        let claimed = !self.is_done(task_id);
        if claimed {
            self.execute_task(task_id).await;
        }
        self.lock.release(guard).await?;
        Ok(claimed)
    }

    fn is_done(&self, task_id: &str) -> bool {
        self.executed.lock().unwrap_or_else(PoisonError::into_inner).contains_key(task_id)
    }

    async fn execute_task(&self, task_id: &str) {
        println!("executing task {task_id}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        *executed.entry(task_id.to_owned()).or_default() += 1;
    }
}
