//! Two upgraders that wait for each other's readers: exactly one is told.

use std::sync::Arc;

use sprag_core::{Client, MemoryStore, Result};
use tokio::sync::Barrier;

/// Holds `mine` as upgradable and `other` as reader, then wants to write `mine`.
async fn upgrade(
    locks: Client,
    mine: &'static str,
    other: &'static str,
    ready: Arc<Barrier>,
) -> Result<()> {
    let mut writer = locks.lock(mine).upgradable().acquire().await?;
    ready.wait().await;
    let reader = locks.lock(other).shared().acquire().await?;
    ready.wait().await;
    writer.upgrade().await?;
    drop(reader);
    Ok(())
}

#[tokio::test]
async fn a_deadlock_of_upgraders_has_exactly_one_victim() {
    let store = MemoryStore::new();
    let ready = Arc::new(Barrier::new(2));
    let start = |mine, other| {
        let locks = Client::new(Arc::new(store.connect()));
        tokio::spawn(upgrade(locks, mine, other, Arc::clone(&ready)))
    };
    let (one, two) = (start("a", "b"), start("b", "a"));
    let outcomes = [one.await.unwrap(), two.await.unwrap()];
    let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].is_deadlock(), "{}", errors[0]);
}
