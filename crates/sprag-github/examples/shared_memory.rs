//! Keeps what is known about locks for as long as it is good, in a memory of your own.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::HashMap;
use std::time::Duration;

use sprag_core::Result;
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_github::{LockManager, LockManagerConfig, LockMetadata};

#[tokio::main]
async fn main() -> Result<()> {
    let github_repo = std::env::var("GITHUB_REPO").unwrap_or_else(|_| "owner/repo".into());
    let config = LockManagerConfig { github_repo, ..Default::default() };
    let mut memory = Memory::new(Duration::from_millis(config.lock_timeout_ms));
    let lock_manager = LockManager::new(config)?;
    memory.store_lock(&lock_manager, 123).await?;
    println!("{:?}", memory.get_lock(123));
    Ok(())
}

/// Locks by key, as JSON, with an end.
#[derive(Debug)]
pub(crate) struct Memory {
    ttl: Duration,
    kept: HashMap<String, (Moment, String)>,
}

impl Memory {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, kept: HashMap::new() }
    }

    /// Stores who has an issue, or that nobody has.
    pub(crate) async fn store_lock(&mut self, manager: &LockManager, issue: u64) -> Result<()> {
        let status = manager.get_lock_status(issue).await?;
        let key = format!("lock:issue-{issue}");
        let json = status.metadata.and_then(|metadata| serde_json::to_string(&metadata).ok());
        match json {
            Some(json) => self.kept.insert(key, (BootClock.now(), json)),
            None => self.kept.remove(&key),
        };
        Ok(())
    }

    /// Who had an issue when it was looked at, unless that is too long ago. Good for people; ask
    /// the manager before anything that must not be done twice.
    pub(crate) fn get_lock(&self, issue: u64) -> Option<LockMetadata> {
        let (at, json) = self.kept.get(&format!("lock:issue-{issue}"))?;
        let fresh = BootClock.now().since(*at) < self.ttl;
        serde_json::from_str(json).ok().filter(|_| fresh)
    }
}
