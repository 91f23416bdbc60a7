//! What people see on an issue, and what happens when they change it.

use std::time::Duration;

use sprag_core::{Client, Holder, Loss, Store, Strategy, TaskInfo};
use sprag_github_sim::Simulator;

use crate::place::{Place, REPO, request, until};

const TTL: Duration = Duration::from_secs(2);

fn assignees(github: &Simulator, issue: u64) -> Vec<String> {
    github.state().repo(REPO).unwrap().issue(issue).unwrap().now().assignees.clone()
}

fn comments(github: &Simulator, issue: u64) -> Vec<String> {
    let state = github.state();
    let repo = state.repo(REPO).unwrap();
    let comments = repo.comments(issue);
    comments.iter().filter_map(|comment| Some(comment.now()?.body.clone())).collect()
}

fn metadata(comment: &str) -> serde_json::Value {
    let json = comment.split("```json\n").nth(1).unwrap().split("\n```").next().unwrap();
    serde_json::from_str(json).unwrap()
}

fn worker(name: &str) -> Holder {
    let task_info = TaskInfo { complexity: Some(5), ..TaskInfo::default() };
    Holder::new(name, "build7.corp").task_info(task_info)
}

#[tokio::test]
async fn the_issue_shows_who_holds_it_and_that_it_was_released() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let client = place.client();
    let guard = client.lock("issue-1").holder(worker("worker-1")).acquire().await.unwrap();
    until("it is shown", || !comments(&place.github, issue).is_empty()).await;
    assert_eq!(assignees(&place.github, issue), ["octocat"]);
    let lock = metadata(&comments(&place.github, issue)[0])["lock"].clone();
    assert_eq!(lock["worker_id"], "worker-1");
    assert_eq!(lock["task_info"]["complexity"], 5);
    assert_eq!(lock["fence"], guard.fence().get());
    assert!(!comments(&place.github, issue)[0].contains("build7"), "no names of machines");
    guard.release().await.unwrap();
    assert_eq!(assignees(&place.github, issue), [""; 0]);
    let told = comments(&place.github, issue);
    assert!(told.len() == 1 && told[0].contains("released this issue"), "{told:?}");
    assert!(metadata(&told[0])["lock"]["released_at"].is_string());
    // Whoever comes next writes over it, from another process as well.
    let next = place.client();
    let guard = next.lock("issue-1").holder(worker("worker-2")).acquire().await.unwrap();
    until("it is shown", || comments(&place.github, issue)[0].contains("worker-2")).await;
    assert_eq!(comments(&place.github, issue).len(), 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn what_is_no_issue_shows_nothing() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let client = place.client();
    for name in ["deploy", "issue-x", "issue-01", "issue-"] {
        client.lock(name).acquire().await.unwrap().release().await.unwrap();
    }
    // Held until it is shown: what is released before may never be.
    let guard = client.lock("1").acquire().await.unwrap();
    until("the number alone is an issue", || !comments(&place.github, issue).is_empty()).await;
    guard.release().await.unwrap();
    assert_eq!(comments(&place.github, issue).len(), 1);
}

#[tokio::test]
async fn what_people_change_is_put_right_and_the_lock_stays() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let client = place.client();
    let guard = client.lock("issue-1").ttl(TTL).holder(worker("w")).acquire().await.unwrap();
    until("it is shown", || !comments(&place.github, issue).is_empty()).await;
    place.github.edit_issue(REPO, issue, |state| state.assignees.clear());
    let id = place.github.state().repo(REPO).unwrap().comments(issue)[0].id;
    let hostile =
        format!("```json\n{{\"lock\":{{\"worker_id\":\"{}\"}}}}\n```", "x".repeat(10_000));
    place.github.edit_comment(REPO, id, Some(&hostile));
    let fake = "```json\n{\"lock\":{\"worker_id\":\"mallory\",\"fence\":9000}}\n```";
    place.github.comment_as(REPO, issue, "mallory", fake);
    until("the assignee is back", || assignees(&place.github, issue) == ["octocat"]).await;
    until("and the comment", || comments(&place.github, issue)[0].contains("`w` holds")).await;
    assert!(guard.is_valid());
    let view = client.inspect("issue-1").await.unwrap();
    assert_eq!(view.holders[0].holder.worker_id, "w");
    // A comment that was deleted is written again, once.
    place.github.edit_comment(REPO, id, None);
    until("it is back", || comments(&place.github, issue).iter().any(|c| c.contains("`w` holds")))
        .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn taking_the_assignee_away_releases_where_that_is_meant() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let config = place.config().human_override(true).settled(Duration::ZERO);
    let store = sprag_github::GitHubStore::open(&config).unwrap();
    let client = Client::new(std::sync::Arc::new(store));
    let guard = client.lock("issue-1").ttl(TTL).acquire().await.unwrap();
    let beats = || {
        place
            .github
            .counters()
            .by_kind()
            .get("GET /repos/{owner}/{repo}/issues/{issue_number}")
            .copied()
    };
    until("it was looked at", || beats().unwrap_or(0) >= 1).await;
    place.github.edit_issue(REPO, issue, |state| state.assignees.clear());
    let loss = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap();
    assert!(matches!(&loss, Loss::Broken { reason, .. } if reason.contains("issue 1")), "{loss:?}");
    let other = place.client();
    other.lock("issue-1").no_wait().acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_takeover_says_from_whom() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let dead = place.client();
    let lost = dead.lock("issue-1").ttl(TTL).no_renewal().holder(worker("dead"));
    let lost = lost.acquire().await.unwrap();
    let admin = Client::builder(std::sync::Arc::new(place.store())).allow_force(true).build();
    let admin = admin.unwrap();
    let forced = admin.lock("issue-1").strategy(Strategy::ForceAcquire).holder(worker("admin"));
    let guard = forced.acquire().await.unwrap();
    until("it is shown", || comments(&place.github, issue).iter().any(|c| c.contains("admin")))
        .await;
    let told = comments(&place.github, issue);
    let told = told.iter().find(|comment| comment.contains("admin")).unwrap();
    let lock = metadata(told)["lock"].clone();
    assert_eq!((&lock["stolen_from"], &lock["forced"]), (&"dead".into(), &true.into()), "{told}");
    assert!(guard.fence() > lost.fence());
}

#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_found_and_never_written_twice() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    place.github.lag(Duration::from_secs(1));
    let lost = sprag_github_sim::Target::Kind("/comments");
    place.github.fail_next(lost, sprag_github_sim::Fault::CloseAfter);
    let store = sprag_github::GitHubStore::open(&place.config().lag(Duration::from_secs(1)));
    let store = store.unwrap();
    let client = Client::new(std::sync::Arc::new(store.clone()));
    let guard = client.lock("issue-1").holder(worker("w")).acquire().await.unwrap();
    until("it is there", || !comments(&place.github, issue).is_empty()).await;
    // And so is the one that says what came of it, once it is known which one it is.
    store.shown(guard.lease()).await.ok();
    let edits = sprag_github_sim::Target::Kind("PATCH /repos/{owner}/{repo}/issues/comments");
    place.github.fail_next(edits, sprag_github_sim::Fault::ErrorBefore(502));
    store.conclude(guard.lease(), "it works", Duration::from_secs(20)).await;
    guard.release().await.unwrap();
    let told = comments(&place.github, issue);
    assert!(told.len() == 1 && told[0].contains("Result: `it works`"), "{told:?}");
    assert_eq!(metadata(&told[0])["lock"]["result"], "it works");
    assert_eq!(place.github.pending_faults(), 0, "both of them happened");
}

#[tokio::test]
async fn the_comment_of_a_killed_holder_is_found_by_its_taker() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    // Nobody gives signs of life for it.
    let dead = place.store();
    dead.try_acquire(&request(1, TTL)).await.unwrap();
    until("it is shown", || !comments(&place.github, issue).is_empty()).await;
    drop(dead);
    // Whoever looks like a lock and is a stranger is left alone.
    let fake = "`mallory` holds this issue <!-- sprag-lock -->";
    place.github.comment_as(REPO, issue, "mallory", fake);
    let steal = Strategy::StealStale { after: Duration::ZERO };
    let taker = place.client();
    let guard = taker.lock("issue-1").strategy(steal).holder(worker("taker")).acquire().await;
    let guard = guard.unwrap();
    until("it is shown", || comments(&place.github, issue)[0].contains("taker")).await;
    let told = comments(&place.github, issue);
    assert!(told[0].contains("took it over from `worker-1`"), "{told:?}");
    assert_eq!((told.len(), told[1].as_str()), (2, fake));
    guard.release().await.unwrap();
}
