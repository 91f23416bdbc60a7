//! The essential promises on a real repository, for those who name one.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::Client;
use sprag_github::{GitHubConfig, GitHubStore};

/// Runs only if `SPRAG_GITHUB_TEST_REPO` names a repository, with a token in `GH_TOKEN`.
#[tokio::test]
async fn real_repository() {
    let Ok(repository) = std::env::var("SPRAG_GITHUB_TEST_REPO") else {
        println!("did not run: set SPRAG_GITHUB_TEST_REPO=you/scratch and GH_TOKEN");
        return;
    };
    let client = || {
        let config = GitHubConfig::parse(&repository).unwrap();
        Client::new(Arc::new(GitHubStore::open(&config).unwrap()))
    };
    let (first, second) = (client(), client());
    let ttl = Duration::from_secs(60);
    let guard = first.lock("sprag-test").ttl(ttl).no_wait().acquire().await.unwrap();
    let held = second.lock("sprag-test").ttl(ttl).no_wait().acquire().await.unwrap_err();
    assert!(held.is_held(), "{held}");
    let fence = guard.fence();
    guard.release().await.unwrap();
    let guard = second.lock("sprag-test").ttl(ttl).no_wait().acquire().await.unwrap();
    assert!(guard.fence() > fence);
    // One renewal, as GitHub sees it.
    tokio::time::sleep(ttl / 2).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let rivals: Vec<_> = (0..8).map(|_| client()).collect();
    let tries = rivals.iter().map(|rival| rival.lock("sprag-race").ttl(ttl).no_wait().acquire());
    let got: Vec<_> = futures::future::join_all(tries).await.into_iter().flatten().collect();
    assert_eq!(got.len(), 1, "exactly one wins");
    for guard in got {
        guard.release().await.unwrap();
    }
}
