//! GitHub's limits: F14, and that holders know before it happens.

use std::time::Duration;

use sprag_core::Loss;
use sprag_core::clock::{BootClock, Clock};
use sprag_github_sim::{Limits, Manner};

use crate::place::Place;

const TTL: Duration = Duration::from_secs(6);

/// F14: the hour's requests are used up and come back long after the lease ends.
#[tokio::test]
async fn a_holder_whose_budget_is_gone_is_told_ahead() {
    let place = Place::new();
    let client = place.client();
    let guard = client.lock("deploy").ttl(TTL).acquire().await.unwrap();
    place.github.limits(Limits { primary: 0, ..Limits::GITHUB });
    let begun = BootClock.now();
    let loss = tokio::time::timeout(TTL, guard.lost()).await.unwrap();
    assert_eq!(loss, Loss::RateLimited);
    assert!(BootClock.now().since(begun) < TTL * 2 / 3, "long before it ends");
    place.github.clear_counters();
    let error = place.client().lock("other").no_wait().acquire().await.unwrap_err();
    assert!(error.is_retryable() && error.message().contains("rate limit"), "{error}");
    assert_eq!(place.github.counters().only(|call| call.primary > 0).len(), 0);
    assert_eq!(place.github.counters().only(|call| call.mutation).len(), 0);
}

/// F14: GitHub asks for silence, and says for how long or does not.
#[tokio::test]
async fn nothing_is_sent_before_the_time_that_github_gave() {
    for manner in [Manner::Forbidden, Manner::TooMany] {
        let place = Place::new();
        let client = place.client();
        client.lock("deploy").acquire().await.unwrap().release().await.unwrap();
        let penalty = Duration::from_secs(3);
        place.github.limits(Limits {
            points: 0,
            graphql_points: 0,
            penalty,
            manner,
            ..Limits::GITHUB
        });
        let error = client.lock("deploy").no_wait().acquire().await.unwrap_err();
        assert!(error.message().contains("rate limit"), "{error}");
        place.unlimited();
        let guard = client.lock("deploy").wait(Duration::from_secs(20)).acquire().await.unwrap();
        let calls = place.github.counters().calls().to_vec();
        let denied = calls.iter().rposition(|call| matches!(call.status, 403 | 429)).unwrap();
        let next = &calls[denied + 1];
        assert!(next.at.since(calls[denied].at) >= penalty, "{manner:?}: too early");
        guard.release().await.unwrap();
    }
}

/// F15: reads show the state of some seconds ago, and still there is one holder.
#[tokio::test]
async fn late_reads_never_make_two_holders() {
    let place = Place::generous();
    place.github.lag(Duration::from_secs(5));
    let clients: Vec<_> = (0..6).map(|_| place.client()).collect();
    let mut fence = sprag_core::Fence::ZERO;
    for _ in 0..5 {
        let tries = clients.iter().map(|client| client.lock("deploy").no_wait().acquire());
        let got: Vec<_> = futures::future::join_all(tries).await.into_iter().flatten().collect();
        assert!(got.len() <= 1, "two holders");
        for guard in got {
            assert!(guard.fence() > fence);
            fence = guard.fence();
            guard.release().await.unwrap();
        }
    }
    assert!(fence > sprag_core::Fence::ZERO, "somebody got it");
}
