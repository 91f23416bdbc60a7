//! Lets only one instance at a time create a checkpoint, and refuses the writes of a late one.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sprag::{DistributedLock, Fence, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Creates one checkpoint on each of three instances; tells their fences in order.
pub(crate) async fn run(url: &str) -> anyhow::Result<Vec<Fence>> {
    let checkpoints = Checkpoints::default();
    let mut instances = Vec::new();
    for _ in 0..3 {
        let lock: Arc<dyn DistributedLock> = Arc::new(Locks::open(url)?);
        let checkpoints = checkpoints.clone();
        instances.push(tokio::spawn(coordinated_checkpoint(checkpoints, lock)));
    }
    for instance in instances {
        instance.await??;
    }

    // A writer that slept past the end of its lease comes back with its old fence.
    let late = checkpoints.write(Fence::ZERO).await;
    println!("late writer: {}", late.expect_err("a smaller fence is refused"));
    Ok(checkpoints.fences())
}

async fn coordinated_checkpoint(
    checkpoints: Checkpoints,
    lock: Arc<dyn DistributedLock>,
) -> anyhow::Result<()> {
    let guard = lock.acquire("global:checkpoint", Duration::from_secs(60)).await?;
    // Only one instance is here at a time.
    checkpoints.write(guard.fence()).await?;
    println!("checkpoint created with fence {}", guard.fence());
    lock.release(guard).await?;
    Ok(())
}

/// Where checkpoints go. It remembers the largest fence it has seen and refuses smaller ones.
#[derive(Clone, Default)]
struct Checkpoints(Arc<Mutex<Vec<Fence>>>);

impl Checkpoints {
    async fn write(&self, fence: Fence) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut fences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&last) = fences.last() {
            anyhow::ensure!(fence > last, "fence {fence} is older than {last}: refused");
        }
        fences.push(fence);
        Ok(())
    }

    fn fences(&self) -> Vec<Fence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
