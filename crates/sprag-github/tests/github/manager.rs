//! The manager: what it answers, and what it shows.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sprag_core::store::Attempt;
use sprag_core::{MemoryStore, Result, Store, TaskInfo};
use sprag_github::{
    AcquireOptions, Comment, ConflictStrategy, GitHubClient, Issue, LockManager, LockManagerConfig,
};

use crate::place::{Place, REPO, request, until};

fn config() -> LockManagerConfig {
    LockManagerConfig {
        github_repo: REPO.into(),
        max_retries: 3,
        initial_backoff_ms: 20,
        max_backoff_ms: 80,
        heartbeat_interval_ms: 500,
        lock_timeout_ms: 2_000,
        status_cache_ms: 0,
        ..Default::default()
    }
}

fn manager(place: &Place) -> LockManager {
    LockManager::with_config(config(), &place.config()).unwrap()
}

fn options(worker: &str, conflict_strategy: ConflictStrategy) -> AcquireOptions {
    AcquireOptions {
        worker_id: worker.into(),
        node_id: "node-abc".into(),
        task_info: Some(TaskInfo { complexity: Some(3), ..TaskInfo::default() }),
        conflict_strategy,
    }
}

#[tokio::test]
async fn a_lock_is_taken_seen_and_given_back() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let manager = manager(&place);
    let result = manager.acquire_lock(issue, options("worker-1", ConflictStrategy::Retry)).await;
    let result = result.unwrap();
    assert!(result.success && result.lock_id == Some(issue) && result.retries == 0, "{result:?}");
    assert_eq!((result.error, result.warning), (None, None));
    let status = manager.get_lock_status(issue).await.unwrap();
    assert!(status.is_locked && !manager.is_lock_stale(&status));
    assert_eq!(status.assignee.as_deref(), Some("octocat"));
    let lock = status.metadata.unwrap().lock;
    assert_eq!((&*lock.worker_id, &*lock.node_id), ("worker-1", "node-abc"));
    assert_eq!(lock.task_info.unwrap().complexity, Some(3));
    assert!(lock.claimed_at.starts_with("2026-"), "{}", lock.claimed_at);
    manager.release_lock(issue, "worker-1").await.unwrap();
    let status = manager.get_lock_status(issue).await.unwrap();
    assert!(!status.is_locked && status.metadata.is_none() && status.assignee.is_none());
    let metrics = manager.get_metrics();
    assert_eq!((metrics.total_acquisitions, metrics.total_releases), (1, 1));
    assert!(metrics.average_acquisition_time_ms > 0.0);
}

#[tokio::test]
async fn a_locked_issue_is_an_answer() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let (first, second) = (manager(&place), manager(&place));
    first.acquire_lock(issue, options("worker-1", ConflictStrategy::Retry)).await.unwrap();
    for (strategy, retries) in [(ConflictStrategy::FailFast, 0), (ConflictStrategy::Retry, 3)] {
        let result = second.acquire_lock(issue, options("worker-2", strategy)).await.unwrap();
        assert!(!result.success && result.retries == retries, "{result:?}");
        let error = result.error.unwrap();
        assert!(error.contains("already locked") && error.contains("worker-1"), "{error}");
    }
    let error = second.release_lock(issue, "worker-2").await.unwrap_err();
    assert!(error.is_not_owner() && error.to_string().contains("worker-1"), "{error}");
    let forced = options("worker-2", ConflictStrategy::ForceAcquire);
    assert!(second.acquire_lock(issue, forced).await.is_err(), "not without admin");
    let metrics = second.get_metrics();
    assert_eq!((metrics.total_conflicts, metrics.total_retries), (5, 3));
    assert_eq!((metrics.failed_acquisitions, metrics.total_acquisitions), (3, 0));
    // While a worker lives it is not robbed, however long that takes.
    let steal = options("worker-2", ConflictStrategy::StealStale);
    assert!(!second.acquire_lock(issue, steal).await.unwrap().success);
    first.ensure_valid(issue).unwrap();
}

#[tokio::test]
async fn a_dead_worker_is_found_stale_and_robbed() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let dead = place.store();
    let taken = dead.try_acquire(&request(1, Duration::from_secs(2))).await.unwrap();
    assert!(matches!(taken, Attempt::Granted(_)), "{taken:?}");
    drop(dead);
    let manager = manager(&place);
    let stale = async {
        loop {
            let status = manager.get_lock_status(issue).await.unwrap();
            if manager.is_lock_stale(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(20), stale).await.unwrap();
    assert!(status.silent_for.unwrap() >= Duration::from_secs(2));
    let steal = options("worker-2", ConflictStrategy::StealStale);
    let result = manager.acquire_lock(issue, steal).await.unwrap();
    assert!(result.success, "{result:?}");
    assert_eq!(manager.get_metrics().stale_locks_claimed, 1);
}

#[tokio::test]
async fn heartbeats_are_given_as_often_as_configured() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let config =
        LockManagerConfig { lock_timeout_ms: 60_000, heartbeat_interval_ms: 200, ..config() };
    let manager = LockManager::with_config(config, &place.config()).unwrap();
    manager.acquire_lock(issue, options("w", ConflictStrategy::Retry)).await.unwrap();
    place.github.clear_counters();
    let beats = || {
        place
            .github
            .counters()
            .only(|call| call.kind.starts_with("PATCH") && call.kind.contains("git/refs"))
            .len()
    };
    until("three heartbeats", || beats() >= 3).await;
}

/// The four methods that a client must have.
#[derive(Debug, Default)]
struct MockClient {
    told: Mutex<Vec<String>>,
}

impl MockClient {
    fn tell(&self, what: String) {
        self.told.lock().unwrap().push(what);
    }
}

impl GitHubClient for MockClient {
    fn get_issue(&self, number: u64) -> Result<Issue> {
        Ok(Issue { number, ..Issue::default() })
    }

    fn assign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        self.tell(format!("assign {number} {assignee}"));
        Ok(Issue { number, assignees: vec![assignee.into()], ..Issue::default() })
    }

    fn unassign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
        self.tell(format!("unassign {number} {assignee}"));
        self.get_issue(number)
    }

    fn add_comment(&self, number: u64, body: &str) -> Result<Comment> {
        self.tell(format!("comment {number} {}", body.lines().next().unwrap_or_default()));
        Ok(Comment { id: 1, body: body.into(), ..Comment::default() })
    }

    fn account(&self) -> Result<Option<String>> {
        Ok(Some("octocat".into()))
    }
}

#[tokio::test]
async fn a_mocked_client_and_locks_in_memory_are_enough_for_a_test() {
    let mock = Arc::new(MockClient::default());
    let store = Arc::new(MemoryStore::new());
    let manager = LockManager::with_client(config(), store, Arc::clone(&mock) as _).unwrap();
    let retry = || options("worker-1", ConflictStrategy::Retry);
    assert!(manager.acquire_lock(123, retry()).await.unwrap().success);
    let other = manager.acquire_lock(123, options("worker-2", ConflictStrategy::FailFast)).await;
    assert!(other.unwrap().error.unwrap().contains("already locked"));
    manager.release_lock(123, "worker-1").await.unwrap();
    let told = mock.told.lock().unwrap().clone();
    assert_eq!(told[0], "assign 123 octocat");
    assert!(told[1].starts_with("comment 123 🔒 `worker-1` holds"), "{told:?}");
    assert_eq!(told.last().unwrap(), "unassign 123 octocat");
}

#[tokio::test]
async fn a_rate_limit_is_an_answer_that_says_so() {
    let place = Place::new();
    let issue = place.github.add_issue(REPO, "Build is red");
    let manager = manager(&place);
    let limits =
        sprag_github_sim::Limits { primary: 0, graphql: 0, ..sprag_github_sim::Limits::GITHUB };
    place.github.limits(limits);
    let result = manager.acquire_lock(issue, options("w", ConflictStrategy::Retry)).await.unwrap();
    assert!(!result.success && result.error.unwrap().contains("rate limit"));
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let open = |config| LockManager::new(config).map(drop).unwrap_err();
    let none = LockManagerConfig::default();
    assert!(open(none).is_bad_input());
    let hectic = LockManagerConfig { heartbeat_interval_ms: 1_500, ..config() };
    let github = sprag_github::GitHubConfig::new("a", "b").unwrap();
    let github = github.token(sprag_github::Token::new("x").unwrap()).state(None);
    assert!(LockManager::with_config(hectic, &github).unwrap_err().is_bad_input());
}
