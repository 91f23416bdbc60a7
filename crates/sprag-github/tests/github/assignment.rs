//! Locks by comments alone: L1, for tokens that may not write contents.

use std::time::Duration;

use sprag_core::store::Attempt;
use sprag_core::{Client, Holder, Level, Strategy};
use sprag_github::{Decides, GitHubConfig};
use sprag_github_sim::{Access, Permission};

use crate::place::{Place, REPO, request};

const NARROW: &str = "token-for-issues";
const TTL: Duration = Duration::from_secs(3);

fn place() -> Place {
    let place = Place::generous();
    place.github.add_token_with(NARROW, "octocat", Access::ISSUES_ONLY);
    place.github.add_collaborator(REPO, "octocat", Permission::Triage);
    place
}

fn config(place: &Place) -> GitHubConfig {
    place.config_for(REPO, NARROW).decides(Decides::Assignment).settle(Duration::from_millis(300))
}

fn client(place: &Place, worker: &str) -> Client {
    let store = sprag_github::open(&config(place)).unwrap();
    Client::builder(store).holder(Holder::new(worker, "node")).build().unwrap()
}

#[tokio::test]
async fn one_of_several_has_the_issue_and_the_level_is_told() {
    let place = place();
    let issue = place.github.add_issue(REPO, "Build is red");
    let clients: Vec<_> = (0..4).map(|number| client(&place, &format!("w{number}"))).collect();
    assert_eq!(clients[0].capability().level, Level::Efficiency);
    let tries = clients.iter().map(|client| client.lock("issue-1").no_wait().acquire());
    let got: Vec<_> = futures::future::join_all(tries).await;
    let guards: Vec<_> = got.into_iter().flatten().collect();
    assert_eq!(guards.len(), 1, "{guards:?}");
    let error = clients[3].lock("issue-1").no_wait().acquire().await;
    assert!(guards[0].name().as_str() == "issue-1" && (error.is_err() || guards.is_empty()));
    let state = place.github.state();
    assert_eq!(state.repo(REPO).unwrap().issue(issue).unwrap().now().assignees, ["octocat"]);
    let body = state.repo(REPO).unwrap().comments(issue)[0].now().unwrap().body.clone();
    assert!(body.contains("L1"), "{body}");
    for guard in guards {
        guard.release().await.unwrap();
    }
    let state = place.github.state();
    let repo = state.repo(REPO).unwrap();
    assert!(repo.issue(issue).unwrap().now().assignees.is_empty());
    assert_eq!(repo.comments(issue).len(), 1, "losers take their claims back");
    clients[1].lock("issue-1").no_wait().acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn it_lives_while_it_is_renewed_and_is_robbed_when_it_is_not() {
    let place = place();
    place.github.add_issue(REPO, "Build is red");
    let (holder, thief) = (client(&place, "holder"), client(&place, "thief"));
    let guard = holder.lock("issue-1").ttl(TTL).acquire().await.unwrap();
    let steal = Strategy::StealStale { after: TTL };
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_valid());
    let none = thief.lock("issue-1").strategy(steal).no_wait().acquire().await;
    assert!(none.unwrap_err().is_held());
    guard.release().await.unwrap();
    let dead = sprag_github::open(&config(&place)).unwrap();
    let Attempt::Granted(grant) = dead.try_acquire(&request(1, TTL)).await.unwrap() else {
        panic!("it was free")
    };
    let taken = thief.lock("issue-1").strategy(steal).ttl(TTL).wait(Duration::from_secs(30));
    let taken = taken.acquire().await.unwrap();
    assert!(taken.fence() > grant.fence);
}

#[tokio::test]
async fn strangers_claim_nothing_and_other_names_are_refused() {
    let place = place();
    let issue = place.github.add_issue(REPO, "Build is red");
    let fake = "```json\n{\"lock\":{\"worker_id\":\"mallory\",\"node_id\":\"x\",\"claimed_at\":\"x\",\
                \"heartbeat_last\":\"x\",\"claim\":\"0\",\"ttl_ms\":99999999}}\n```";
    place.github.comment_as(REPO, issue, "mallory", fake);
    let client = client(&place, "w");
    client.lock("issue-1").no_wait().acquire().await.unwrap().release().await.unwrap();
    let error = client.lock("deploy").no_wait().acquire().await.unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("L1"), "{error}");
}
