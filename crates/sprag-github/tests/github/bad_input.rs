//! What is wrong with the token, the repository or the issue is told, with what to do: F54.

use sprag_core::{Client, Error};
use sprag_github::{AcquireOptions, GitHubConfig, LockManager, LockManagerConfig};
use sprag_github_sim::{Access, Fate, Fault, Target};

use crate::place::{Place, REPO, TOKEN};

async fn refused(config: &GitHubConfig) -> Error {
    let store = sprag_github::open(config).unwrap();
    Client::new(store).lock("deploy").no_wait().acquire().await.unwrap_err()
}

fn assert_told(error: &Error, words: &[&str]) {
    assert!(error.is_refused() && !error.is_retryable(), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(!format!("{error:?}").contains(TOKEN));
}

#[tokio::test]
async fn what_is_wrong_with_token_and_repository_is_told() {
    let place = Place::new();
    place.github.add_token_with("narrow", "octocat", Access::ISSUES_ONLY);
    let wrong = place.config_for(REPO, "wrong");
    assert_told(&refused(&wrong).await, &["401", "gh auth login"]);
    let narrow = place.config_for(REPO, "narrow");
    assert_told(&refused(&narrow).await, &["contents:write"]);
    let missing = place.config_for("acme/nothing", TOKEN);
    assert_told(&refused(&missing).await, &["acme/nothing", "check the name"]);
    place.github.add_empty_repo("octocat/empty");
    let empty = place.config_for("octocat/empty", TOKEN);
    assert_told(&refused(&empty).await, &["first commit"]);
    place.github.add_repo("octocat/old");
    place.github.rename_repo("octocat/old", "octocat/new");
    let renamed = place.config_for("octocat/old", TOKEN);
    assert_told(&refused(&renamed).await, &["octocat/new"]);
    place.github.archive(REPO, true);
    assert_told(&refused(&place.config()).await, &["archived"]);
}

#[tokio::test]
async fn a_token_that_is_revoked_loses_nothing() {
    let place = Place::generous();
    let client = place.client();
    let guard = client.lock("deploy").acquire().await.unwrap();
    place.github.revoke_token(TOKEN);
    let error = client.inspect("deploy").await.unwrap_err();
    assert_told(&error, &["401"]);
    assert!(guard.is_valid(), "the ref is as it was");
    place.github.add_token(TOKEN, "octocat");
    guard.release().await.unwrap();
}

fn manager(place: &Place) -> LockManager {
    LockManager::with_config(LockManagerConfig::default(), &place.config()).unwrap()
}

fn worker() -> AcquireOptions {
    AcquireOptions { worker_id: "w".into(), node_id: "n".into(), ..AcquireOptions::default() }
}

#[tokio::test]
async fn an_issue_that_is_not_there_is_not_locked() {
    let place = Place::generous();
    place.github.add_repo("octocat/other");
    let [deleted, moved] = [place.github.add_issue(REPO, "a"), place.github.add_issue(REPO, "b")];
    place.github.delete_issue(REPO, deleted);
    let there = place.github.transfer_issue(REPO, moved, "octocat/other");
    let manager = manager(&place);
    for (issue, told) in [(999, "check the number"), (deleted, "deleted"), (moved, "transferred")] {
        let error = manager.acquire_lock(issue, worker()).await.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(told), "{issue}: {error}");
        let view = place.client().inspect(format!("issue-{issue}").as_str()).await.unwrap();
        assert!(!view.is_locked(), "{issue} is left locked");
    }
    assert!(there > 0 && manager.acquire_lock(0, worker()).await.unwrap_err().is_bad_input());
}

#[tokio::test]
async fn closed_issues_pull_requests_and_locked_conversations_can_be_locked() {
    let place = Place::generous();
    let closed = place.github.add_issue(REPO, "done");
    place.github.close_issue(REPO, closed);
    let pull = place.github.add_pull_request(REPO, "fix", &[closed]);
    let locked = place.github.add_issue(REPO, "quiet");
    place.github.lock_issue(REPO, locked);
    let manager = manager(&place);
    for issue in [closed, pull, locked] {
        let result = manager.acquire_lock(issue, worker()).await.unwrap();
        assert!(result.success, "{issue}: {result:?}");
        manager.release_lock(issue, "w").await.unwrap();
    }
    assert!(matches!(
        place.github.state().repo(REPO).unwrap().issue(locked).unwrap().now().fate,
        Fate::Here
    ));
}

#[tokio::test]
async fn a_lock_that_cannot_be_shown_is_held_with_a_warning() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "busy");
    let manager = manager(&place);
    place.github.fail_next(Target::Kind("comments"), Fault::ErrorBefore(403));
    let result = manager.acquire_lock(issue, worker()).await.unwrap();
    assert!(result.success && result.warning.is_some(), "{result:?}");
    manager.ensure_valid(issue).unwrap();
    manager.release_lock(issue, "w").await.unwrap();
}

/// F53: the update was applied, and the answer was an error.
#[tokio::test]
async fn an_answer_that_was_lost_is_no_lost_lock() {
    let place = Place::generous();
    let client = place.client();
    for fault in [Fault::ErrorAfter(502), Fault::ErrorAfter(504), Fault::CloseAfter] {
        place.github.fail_next(Target::Kind("graphql mutation"), fault);
        let guard = client.lock("deploy").no_wait().acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}
