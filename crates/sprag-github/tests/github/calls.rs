//! How many requests things take.

use std::time::Duration;

use sprag_core::Store;
use sprag_core::store::Attempt;
use sprag_github_sim::Counters;

use crate::place::{Place, REPO, request, until};

const TTL: Duration = Duration::from_secs(300);

/// What was asked for the lock, and what for people.
fn split(counters: &Counters) -> (usize, usize) {
    let shows = |kind: &str| kind.contains("/issues/") || kind.contains("/user");
    let mirror = counters.only(|call| shows(&call.kind)).len();
    (counters.len() - mirror, mirror)
}

#[tokio::test]
async fn an_uncontended_lock_takes_few_requests() {
    let place = Place::generous();
    let issue = place.github.add_issue(REPO, "Build is red");
    let commented = || {
        let state = place.github.state();
        state.repo(REPO).unwrap().comments(issue).len()
    };
    let first = place.client();
    let guard = first.lock("issue-1").acquire().await.unwrap();
    until("it is shown", || commented() == 1).await;
    guard.release().await.unwrap();
    // Another process, for which everything is new; then once more in the same one, after somebody
    // else had it.
    let second = place.client();
    for round in 0..3 {
        place.github.clear_counters();
        let guard = second.lock("issue-1").acquire().await.unwrap();
        until("it is shown", || split(&place.github.counters()).1 >= 2).await;
        let (lock, mirror) = split(&place.github.counters());
        assert!(lock <= 4 && mirror <= 2, "{round}: {:?}", place.github.counters().by_kind());
        place.github.clear_counters();
        guard.release().await.unwrap();
        let (lock, mirror) = split(&place.github.counters());
        assert!(lock <= 2 && mirror <= 2, "{round}: {:?}", place.github.counters().by_kind());
        first.lock("issue-1").acquire().await.unwrap().release().await.unwrap();
    }
}

/// An hour with `SPRAG_TORTURE=full`.
#[tokio::test]
async fn a_hundred_waiters_cost_next_to_nothing() {
    let minutes =
        if std::env::var("SPRAG_TORTURE").is_ok_and(|how| how == "full") { 60 } else { 6 };
    let place = Place::frozen();
    place.github.add_issue(REPO, "Build is red");
    let poll = Duration::from_secs(1)..=Duration::from_secs(16);
    let config = place.config().poll(poll);
    let open = || sprag_github::GitHubStore::open(&config).unwrap();
    let holder = open();
    assert!(matches!(holder.try_acquire(&request(1, TTL)).await.unwrap(), Attempt::Granted(_)));
    let waiters: Vec<_> = (0..100).map(|_| open()).collect();
    for round in 0..minutes * 12 {
        if round == 1 {
            // From here on everybody has looked once by each of the two ways.
            place.github.clear_counters();
        }
        for (waiter, lease) in waiters.iter().zip(2..) {
            let answer = waiter.try_acquire(&request(lease, TTL)).await.unwrap();
            assert!(matches!(answer, Attempt::Held(_)), "{answer:?}");
            place.github.advance(Duration::from_millis(if round == 0 { 700 } else { 50 }));
            if round == 0 {
                waiter.ledger().unwrap().inspect(&request(lease, TTL).name).await.unwrap();
            }
        }
    }
    let counters = place.github.counters();
    assert!(counters.len() > 100, "they did look: {}", counters.len());
    let (primary, graphql) = (counters.primary(), counters.graphql());
    assert!(primary <= 60 && graphql == 0, "{primary}, {graphql}: {:?}", counters.by_kind());
    assert_eq!(counters.denied(), 0);
}
