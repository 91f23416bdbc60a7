//! What everybody can read in the repository.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::store::{Attempt, Eviction};
use sprag_core::{AuditQuery, Client, Holder, LockName, Store};
use sprag_github::{GitHubStore, public_holder};

use crate::place::{Place, request};

const HOST: &str = "laptop.corp";

/// All that the lock's commits say.
async fn told(store: &GitHubStore) -> String {
    let name = sprag_ledger::RefName::lock(&LockName::new("issue-1").unwrap());
    let ledger = Arc::clone(store.ledger().unwrap().ledger());
    let history = tokio::task::spawn_blocking(move || ledger.history(&name, 100).unwrap());
    format!("{:?}", history.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_name_no_machine_and_no_user_unless_asked_to() {
    for show in [false, true] {
        let place = Place::generous();
        let config = place.config().show_node(show).notes(true);
        let store = GitHubStore::open(&config).unwrap();
        let holder = Holder::new(format!("ada@{HOST}#4711 (pod {HOST})"), HOST);
        let ask = |lease| {
            let mut request = request(lease, Duration::from_secs(60));
            request.holder = holder.clone();
            request
        };
        let Attempt::Granted(grant) = store.try_acquire(&ask(1)).await.unwrap() else { panic!() };
        let Attempt::Held(_) = store.try_acquire(&ask(2)).await.unwrap() else { panic!() };
        let view = store.inspect(&ask(1).name).await.unwrap();
        let expected = if show { holder.clone() } else { public_holder(&holder) };
        assert_eq!(view.holders[0].holder.worker_id, expected.worker_id);
        // An operator who breaks it is named as well.
        let by = Holder::this_process().worker_id;
        let host = Holder::this_process().node_id;
        let eviction =
            Eviction { name: ask(1).name, fence: grant.fence, by, reason: "hangs".into() };
        store.evict(&eviction).await.unwrap();
        let entries = store.audit(&AuditQuery::default()).await.unwrap();
        store.note(&entries).await.unwrap();
        let told = told(&store).await;
        assert!(told.contains("#4711") && told.contains("hangs"), "{told}");
        for secret in [HOST, "ada@", &format!("{host}:")] {
            assert_eq!(told.contains(secret), show, "{secret}: {told}");
        }
    }
}

/// A worker that has a name is known by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_name_is_found_by_it() {
    let place = Place::generous();
    let client = Client::new(Arc::new(place.store()));
    let holder = Holder::new("indexer-3", HOST);
    let lock = client.lock("issue-1").holder(holder.clone());
    let guard = lock.acquire().await.unwrap();
    let view = client.inspect("issue-1").await.unwrap();
    assert_eq!(view.holders[0].holder.worker_id, "indexer-3");
    assert_eq!(view.holders[0].holder.node_id, public_holder(&holder).node_id);
    guard.release().await.unwrap();
}
