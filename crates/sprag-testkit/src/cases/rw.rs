//! Many readers or one writer.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::Arc;

use sprag_core::{Client, Mode, Store};

use crate::harness::Harness;
use crate::support::{
    LONG, able, let_time_pass, look, now, spawn_acquire, until_unused, until_waiters, within,
};

/// Whether the store has read-write locks; if not, they are refused.
pub(super) async fn has_readers(client: &Client) -> bool {
    able(client, |able| able.shared, |client| client.lock("any").shared()).await
        && able(client, |able| able.shared, |client| client.lock("any").upgradable()).await
}

/// Readers share, a writer is alone, and the last reader lets it in.
pub async fn readers_share_and_writers_do_not(harness: &dyn Harness) {
    let (one, two) = (harness.client().await, harness.client().await);
    if !has_readers(&one).await {
        return;
    }
    let first = one.rw_lock("config").unwrap().read().ttl(LONG).acquire().await.unwrap();
    let second = two.rw_lock("config").unwrap().read().ttl(LONG).acquire().await.unwrap();
    assert_eq!((first.mode(), second.mode()), (Mode::Shared, Mode::Shared));
    assert!(two.lock("config").try_acquire().await.unwrap().is_none());
    let writing = spawn_acquire(two.rw_lock("config").unwrap().write().ttl(LONG));
    until_waiters(one.store(), "config", 1).await;
    first.release().await.unwrap();
    assert!(!writing.is_finished() && look(one.store(), "config").await.waiters.len() == 1);
    second.release().await.unwrap();
    let writer = within("the writer is granted", writing).await.unwrap().unwrap();
    for reader in [one.lock("config").shared(), two.lock("config").upgradable()] {
        assert!(reader.try_acquire().await.unwrap().is_none(), "read beside a writer");
    }
    assert!(writer.is_valid());
}

/// FAULTS 22: a stream of readers does not starve a writer, because readers that come after it
/// wait behind it; those are then let in together.
pub async fn a_waiting_writer_is_not_overtaken(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    if !has_readers(&client).await {
        return;
    }
    let reader = client.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let writing = spawn_acquire(other.lock("config").ttl(LONG));
    until_waiters(client.store(), "config", 1).await;
    let late = client.lock("config").shared().try_acquire().await.unwrap();
    assert!(late.is_none(), "a reader overtook the waiting writer");
    let readers = [(); 2].map(|()| spawn_acquire(other.lock("config").shared().ttl(LONG)));
    until_waiters(client.store(), "config", 3).await;
    reader.release().await.unwrap();
    let writer = within("the writer is granted", writing).await.unwrap().unwrap();
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    let mut both = Vec::new();
    for reader in readers {
        both.push(within("the readers are granted", reader).await.unwrap().unwrap());
    }
    assert_eq!(look(client.store(), "config").await.holders.len(), 2, "not together: {both:?}");
}

/// FAULTS 22: a writer does not overtake readers that came before it.
pub async fn waiting_readers_are_not_overtaken(harness: &dyn Harness) {
    let (client, other) = (harness.client().await, harness.client().await);
    if !has_readers(&client).await {
        return;
    }
    let writer = client.lock("config").ttl(LONG).acquire().await.unwrap();
    let reading = spawn_acquire(other.lock("config").shared().ttl(LONG));
    until_waiters(client.store(), "config", 1).await;
    let writing = spawn_acquire(other.lock("config").ttl(LONG));
    until_waiters(client.store(), "config", 2).await;
    writer.release().await.unwrap();
    let reader = within("the reader is granted", reading).await.unwrap().unwrap();
    assert!(!writing.is_finished());
    reader.release().await.unwrap();
    drop(within("the writer is granted", writing).await.unwrap().unwrap());
}

/// F64, FAULTS 22: the death of one reader frees that reader only; the writer waits for the
/// others.
pub async fn a_dead_reader_frees_only_itself(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_readers(&client).await {
        return;
    }
    let session = harness.session().await;
    let doomed = Client::new(Arc::clone(&session) as Arc<dyn Store>);
    let ttl = if harness.sees_death() { LONG * 10 } else { harness.ttl() };
    let dead = doomed.lock("config").shared().ttl(ttl).acquire().await.unwrap();
    let alive = client.lock("config").shared().ttl(LONG).acquire().await.unwrap();
    let writing = spawn_acquire(client.lock("config").ttl(LONG));
    until_waiters(client.store(), "config", 1).await;
    session.kill();
    let only = || async {
        let view = look(client.store(), "config").await;
        view.holders.len() == 1 && view.holders[0].lease == alive.lease()
    };
    crate::support::eventually("the dead reader is gone", only).await;
    assert!(!writing.is_finished() && alive.is_valid());
    alive.release().await.unwrap();
    drop(within("the writer is granted", writing).await.unwrap().unwrap());
    drop(dead);
}

/// F64, FAULTS 22: each reader has its own lease. Renewals of one do not keep another alive, and
/// the writer gets in when the longest of them ends, not before.
pub async fn each_reader_has_its_own_lease(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_readers(&client).await {
        return;
    }
    let ttl = harness.ttl();
    let read = |ttl| client.lock("config").shared().ttl(ttl);
    let longest = read(ttl * 3).no_renewal().acquire().await.unwrap();
    let mut short = Vec::new();
    for _ in 0..4 {
        short.push(read(ttl).no_renewal().acquire().await.unwrap());
    }
    let renewed = read(LONG).acquire().await.unwrap();
    let writing = spawn_acquire(client.lock("config").ttl(LONG));
    until_waiters(client.store(), "config", 1).await;
    let_time_pass(ttl).await;
    let two = || async { look(client.store(), "config").await.holders.len() <= 2 };
    crate::support::eventually("the short ones end", two).await;
    assert!(short.iter().all(|reader| !reader.is_valid()));
    renewed.release().await.unwrap();
    drop(within("the writer is granted", writing).await.unwrap().unwrap());
    assert!(now() >= longest.valid_until(), "before the longest lease was over");
    assert!(!longest.is_valid());
}

/// FAULTS 22: a stream of readers that come and go leaves nothing behind.
pub async fn readers_that_come_and_go_leave_nothing(harness: &dyn Harness) {
    let client = harness.client().await;
    if !has_readers(&client).await {
        return;
    }
    let mut guards = std::collections::VecDeque::new();
    for _ in 0..30 {
        guards.push_back(client.lock("config").shared().ttl(LONG).acquire().await.unwrap());
        if guards.len() > 5 {
            guards.pop_front();
        }
    }
    guards.clear();
    until_unused(client.store(), "config").await;
}
