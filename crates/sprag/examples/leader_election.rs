//! Elects one leader, and another one when it goes.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{LeaderElection, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells the epochs of the two leaders that followed each other.
pub(crate) async fn run(url: &str) -> anyhow::Result<Vec<u64>> {
    let mut candidates = Vec::new();
    for _ in 0..3 {
        let lock = Arc::new(Locks::open(url)?);
        candidates.push(LeaderElection::new(lock, "demo").with_ttl(Duration::from_secs(10)));
    }

    let mut epochs = Vec::new();
    while epochs.len() < 2 {
        for (number, candidate) in candidates.iter_mut().enumerate() {
            if !candidate.try_become_leader().await? {
                println!("candidate {number} follows");
                continue;
            }
            let Some(epoch) = candidate.epoch() else { continue };
            println!("candidate {number} leads in epoch {epoch}");
            epochs.push(epoch.get());
            // A leader does this every third of its TTL, and stops leading if it fails.
            candidate.maintain_leadership().await?;
        }
        // The leader goes away; nobody has to wait for its TTL.
        for candidate in &mut candidates {
            if candidate.is_leader() {
                candidate.resign().await?;
            }
        }
    }
    Ok(epochs)
}
