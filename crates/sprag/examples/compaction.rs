//! Compacts each partition on one instance at a time; the others skip it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{DistributedLock, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells how often a partition was compacted, and how often it was skipped.
pub(crate) async fn run(url: &str) -> anyhow::Result<(usize, usize)> {
    let mut attempts = Vec::new();
    for _instance in 0..3 {
        let lock: Arc<dyn DistributedLock> = Arc::new(Locks::open(url)?);
        for partition in 0..2 {
            attempts.push(tokio::spawn(compact_partition(Arc::clone(&lock), partition)));
        }
    }
    let (mut compacted, mut skipped) = (0, 0);
    for attempt in attempts {
        if attempt.await?? {
            compacted += 1;
        } else {
            skipped += 1;
        }
    }
    println!("{compacted} compactions, {skipped} skipped");
    Ok((compacted, skipped))
}

async fn compact_partition(
    lock: Arc<dyn DistributedLock>,
    partition_id: u32,
) -> anyhow::Result<bool> {
    let resource = format!("compaction:partition:{partition_id}");

    // Skips it if another instance is compacting.
    let Some(guard) = lock.try_acquire(&resource, Duration::from_secs(300)).await? else {
        println!("partition {partition_id} is already being compacted");
        return Ok(false);
    };
    println!("starting compaction of partition {partition_id}");
    perform_compaction(partition_id).await;
    println!("compaction of partition {partition_id} completed");
    lock.release(guard).await?;
    Ok(true)
}

async fn perform_compaction(_partition_id: u32) {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
