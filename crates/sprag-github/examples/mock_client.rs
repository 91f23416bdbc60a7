//! A test without GitHub: four methods of a client, and locks in memory.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex, PoisonError};

use sprag_core::{MemoryStore, Result};
use sprag_github::{AcquireOptions, Comment, GitHubClient, Issue, LockManager, LockManagerConfig};

#[tokio::main]
async fn main() -> Result<()> {
    run().await?.iter().for_each(|call| println!("{call}"));
    Ok(())
}

/// Remembers what it was asked.
#[derive(Debug, Default)]
struct MockClient(Mutex<Vec<String>>);

impl MockClient {
    fn call(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

impl GitHubClient for MockClient {
    fn get_issue(&self, number: u64) -> Result<Issue> {
        Ok(Issue { number, ..Issue::default() })
    }

    fn assign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        self.call(format!("assign #{number} to {assignee}"));
        Ok(Issue { number, assignees: vec![assignee.into()], ..Issue::default() })
    }

    fn unassign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        self.call(format!("unassign #{number} from {assignee}"));
        self.get_issue(number)
    }

    fn add_comment(&self, number: u64, body: &str) -> Result<Comment> {
        self.call(format!("comment on #{number}"));
        Ok(Comment { id: 1, body: body.into(), ..Comment::default() })
    }

    fn account(&self) -> Result<Option<String>> {
        Ok(Some("octocat".into()))
    }
}

/// What was asked of the client while an issue was locked and released.
pub(crate) async fn run() -> Result<Vec<String>> {
    let mock = Arc::new(MockClient::default());
    let config = LockManagerConfig { github_repo: "owner/repo".into(), ..Default::default() };
    let store = Arc::new(MemoryStore::new());
    let manager = LockManager::with_client(config, store, Arc::clone(&mock) as _)?;
    let options = AcquireOptions { worker_id: "worker-1".into(), ..Default::default() };
    assert!(manager.acquire_lock(123, options).await?.success);
    manager.release_lock(123, "worker-1").await?;
    let calls = mock.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(calls)
}
