//! Runs every example on a simulated GitHub and checks what it shows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../examples/backoff.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod backoff;
#[path = "../examples/heartbeats.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod heartbeats;
#[path = "../examples/lock_an_issue.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod lock_an_issue;
#[path = "../examples/mock_client.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod mock_client;
#[path = "../examples/recovery.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod recovery;
#[path = "../examples/shared_memory.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod shared_memory;
#[path = "../examples/status_and_metrics.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod status_and_metrics;
#[path = "../examples/strategies.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod strategies;
#[path = "../examples/worker.rs"]
#[expect(dead_code, reason = "its main is not used here")]
mod worker;

use std::time::Duration;

use sprag_github::{AcquireOptions, GitHubConfig, LockManager, LockManagerConfig, Token};
use sprag_github_sim::{Limits, Permission, Setup, Simulator};

const REPO: &str = "owner/repo";

struct Place {
    github: Simulator,
    issue: u64,
    state: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let github = Setup::new(7).speed(1).start();
        github.limits(Limits::GENEROUS);
        github.add_token("secret", "octocat");
        github.add_repo(REPO);
        github.add_collaborator(REPO, "octocat", Permission::Write);
        let issue = github.add_issue(REPO, "Build is red");
        Self { github, issue, state: tempfile::tempdir().unwrap() }
    }

    fn config(&self) -> LockManagerConfig {
        LockManagerConfig {
            github_repo: REPO.into(),
            api: Some(self.github.url().into()),
            token: Some(Token::new("secret").unwrap()),
            status_cache_ms: 0,
            ..Default::default()
        }
    }

    /// A manager of another machine.
    fn manager(&self, config: LockManagerConfig) -> LockManager {
        let github = GitHubConfig::parse(REPO).unwrap().api(self.github.url()).unwrap();
        let github = github.token(Token::new("secret").unwrap()).limits(false);
        let state = self.state.path().to_owned();
        LockManager::with_config(config, &github.state(Some(state))).unwrap()
    }

    async fn hold(&self, manager: &LockManager, worker: &str) {
        let options = AcquireOptions { worker_id: worker.into(), ..Default::default() };
        assert!(manager.acquire_lock(self.issue, options).await.unwrap().success);
    }

    fn comments(&self) -> Vec<String> {
        let state = self.github.state();
        let comments = state.repo(REPO).unwrap().comments(self.issue);
        comments.iter().filter_map(|comment| Some(comment.now()?.body.clone())).collect()
    }
}

#[tokio::test]
async fn an_issue_is_locked_shown_and_released() {
    let place = Place::new();
    assert!(lock_an_issue::run(place.config(), place.issue).await.unwrap());
    let comments = place.comments();
    assert_eq!(comments.len(), 1);
    for told in ["\"estimated_duration\": \"45min\"", "\"node-abc123\"", "released this issue"] {
        assert!(comments[0].contains(told), "{told}: {}", comments[0]);
    }
}

#[tokio::test]
async fn what_is_held_is_refused_and_what_is_stale_is_taken() {
    let place = Place::new();
    let quick = || LockManagerConfig {
        lock_timeout_ms: 2_000,
        heartbeat_interval_ms: 500,
        ..place.config()
    };
    let dead = place.manager(quick());
    place.hold(&dead, "dead").await;
    let [fast, steal] = {
        let alive = place.manager(LockManagerConfig { max_retries: 1, ..quick() });
        strategies::run(&alive, place.issue).await.unwrap()
    };
    assert!(fast.error.unwrap().contains("already locked") && !steal.success);
    // It was not released: its process is gone.
    std::mem::forget(dead);
    // Whoever works here gives no heartbeat for it, so it gets stale as soon as nobody does.
    place.github.revoke_token("secret");
    place.github.add_token("other", "octocat");
    let github = GitHubConfig::parse(REPO).unwrap().api(place.github.url()).unwrap();
    let github = github.token(Token::new("other").unwrap()).limits(false).state(None);
    let taker = LockManager::with_config(quick(), &github).unwrap();
    let taken = async {
        loop {
            let [_, steal] = strategies::run(&taker, place.issue).await.unwrap();
            if steal.success {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(40), taken).await.unwrap();
    assert_eq!(taker.get_metrics().stale_locks_claimed, 1);
}

#[tokio::test]
async fn the_status_and_the_metrics_are_told() {
    let place = Place::new();
    let manager = place.manager(place.config());
    let free = status_and_metrics::status(&manager, place.issue).await.unwrap();
    assert_eq!(free, "Issue is unlocked");
    place.hold(&manager, "worker-7").await;
    let held = status_and_metrics::status(&manager, place.issue).await.unwrap();
    assert!(held.contains("Locked by: octocat\nWorker: worker-7\nSince: 20"), "{held}");
    manager.release_lock(place.issue, "worker-7").await.unwrap();
    let metrics = status_and_metrics::metrics(&manager);
    assert!(metrics.starts_with("Acquisitions: 1\nReleases: 1\nConflicts: 0\n"), "{metrics}");
}

#[tokio::test]
async fn a_worker_works_once_and_lets_go() {
    let place = Place::new();
    let config = || LockManagerConfig { max_retries: 0, ..place.config() };
    let first = worker::Worker::new("worker-1", place.manager(config()));
    let second = worker::Worker::new("worker-2", place.manager(config()));
    let inside = first.process_task(place.issue, second.process_task(place.issue, async {}));
    let refused = inside.await.unwrap().unwrap();
    assert_eq!(refused.unwrap(), None, "while the first one works the second one does not");
    assert_eq!(second.process_task(place.issue, async { 7 }).await.unwrap(), Some(7));
}

#[tokio::test]
async fn recovery_knows_what_to_do_next() {
    let place = Place::new();
    let manager = place.manager(place.config());
    let next = || recovery::run(&manager, place.issue, "worker-1");
    assert_eq!(next().await, recovery::Next::Work);
    manager.release_lock(place.issue, "worker-1").await.unwrap();
    let other = place.manager(place.config());
    place.hold(&other, "worker-2").await;
    assert_eq!(next().await, recovery::Next::AnotherIssue);
    other.release_lock(place.issue, "worker-2").await.unwrap();
    let missing = recovery::run(&manager, 99, "worker-1").await;
    assert!(matches!(missing, recovery::Next::Stop(why) if why.contains("issues/99")));
    place.github.limits(Limits { primary: 0, graphql: 0, ..Limits::GITHUB });
    assert_eq!(next().await, recovery::Next::Later(Duration::from_secs(60)));
}

#[tokio::test]
async fn a_mock_is_asked_what_github_would_be() {
    let calls = mock_client::run().await.unwrap();
    assert_eq!(calls[..2], ["assign #123 to octocat", "comment on #123"]);
    assert_eq!(calls.last().unwrap(), "unassign #123 from octocat");
}

#[test]
fn the_backoff_doubles_up_to_its_limit() {
    let seconds = [1, 2, 4, 8, 16].map(Duration::from_secs);
    assert_eq!(backoff::run(&LockManagerConfig::default()), seconds);
}

#[tokio::test]
async fn heartbeats_keep_a_lock_and_write_no_more_comments() {
    let place = Place::new();
    let config = || LockManagerConfig {
        lock_timeout_ms: 3_000,
        heartbeat_interval_ms: 300,
        ..place.config()
    };
    let (holder, watcher) = (place.manager(config()), place.manager(config()));
    let work = Duration::from_secs(4);
    let status = heartbeats::run(&holder, &watcher, place.issue, work).await.unwrap();
    assert!(status.is_locked && !watcher.is_lock_stale(&status), "{status:?}");
    assert!(status.silent_for.unwrap() < Duration::from_secs(3), "{status:?}");
    let lock = status.metadata.unwrap().lock;
    assert!(lock.heartbeat_last > lock.claimed_at, "{lock:?}");
    assert_eq!(place.comments().len(), 1);
}

#[tokio::test]
async fn what_is_stored_is_found_until_it_is_too_old() {
    let place = Place::new();
    let manager = place.manager(place.config());
    place.hold(&manager, "worker-7").await;
    let mut memory = shared_memory::Memory::new(Duration::from_secs(60));
    memory.store_lock(&manager, place.issue).await.unwrap();
    assert_eq!(memory.get_lock(place.issue).unwrap().lock.worker_id, "worker-7");
    assert_eq!(memory.get_lock(place.issue + 1), None);
    let mut forgetful = shared_memory::Memory::new(Duration::ZERO);
    forgetful.store_lock(&manager, place.issue).await.unwrap();
    assert_eq!(forgetful.get_lock(place.issue), None);
}
