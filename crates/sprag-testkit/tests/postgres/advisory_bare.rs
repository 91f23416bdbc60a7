//! Advisory locks that are held for a moment and leave no row: what others see of them, and that nobody
//! is let in beside them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sprag::{Locks, advisory_key};
use sprag_core::store::Listing;
use sprag_core::{AuditQuery, Client, Strategy};
use sprag_testkit::postgres_server::{Database, Psql, skipped};
use sprag_testkit::support::{LONG, eventually, now, spawn_acquire, within};

const NAME: &str = "report";

fn advisory(database: &Database) -> Locks {
    Locks::open(&format!("{}?mode=advisory", database.url())).unwrap()
}

fn rows(database: &Database) -> String {
    database.sql("SELECT count(*) FROM sprag.lock")
}

/// Taken and given back, over and over, a lock writes no row, and its fences grow.
#[tokio::test]
async fn a_lock_that_is_held_for_a_moment_leaves_no_row() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database);
    let mut last = None;
    for _ in 0..20 {
        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        assert!(last < Some(guard.fence()));
        last = Some(guard.fence());
        guard.release().await.unwrap();
    }
    // A beat of the pulse may have come in between, and has written one of them down.
    let written = "SELECT coalesce(sum(version), 0) <= 4 FROM sprag.lock";
    assert_eq!(database.sql(written), "t");
    assert_eq!(database.holders_of(advisory_key("default", NAME)), "");
}

/// Who takes a lock over and over, and nobody writes meanwhile, does so by statements that call nothing; for
/// others it is a lock like any other.
#[tokio::test]
async fn who_takes_it_over_and_over_goes_the_shortest_way() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database), advisory(&database));
    let asked = "SELECT string_agg(query, ' ') FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'sprag'";
    let visit = async |locks: &Locks| {
        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let fence = guard.fence();
        guard.release().await.unwrap();
        fence
    };
    // Transactions of other databases delay it, and a beat of the pulse may be asked last.
    eventually("it goes the shortest way", async || {
        for _ in 0..20 {
            visit(&locks).await;
        }
        database.sql(asked).contains("leave_again_v1")
    })
    .await;
    let mut last = visit(&locks).await;
    for turn in 0..20 {
        let fence = visit(if turn % 5 == 0 { &others } else { &locks }).await;
        assert!(fence > last, "turn {turn}");
        last = fence;
    }
    assert_eq!(database.holders_of(advisory_key("default", NAME)), "");
}

/// One that is held for longer is written down by the pulse.
#[tokio::test]
async fn a_lock_that_is_held_for_longer_is_written_down() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let locks = advisory(&database);
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    eventually("it is written", async || rows(&database) == "1").await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_eq!(database.holders_of(advisory_key("default", NAME)), "");
}

/// Another process sees who has it, in a look and in a list, and may break it.
#[tokio::test]
async fn others_see_a_bare_lock_and_may_break_it() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database), advisory(&database));
    for name in ["looked at", "listed", "broken"] {
        let guard = locks.lock(name).ttl(LONG).acquire().await.unwrap();
        match name {
            "looked at" => {
                let view = others.inspect(name).await.unwrap();
                assert_eq!(view.holders.len(), 1);
                assert_eq!(view.holders[0].fence, guard.fence());
            }
            "listed" => {
                let page = others.list(&Listing::default()).await.unwrap();
                let names: Vec<_> = page.locks.iter().map(|view| view.name.to_string()).collect();
                assert!(names.contains(&name.to_owned()), "{names:?}");
            }
            _ => {
                others.evict(name, guard.fence(), "why").await.unwrap();
                let next = others.lock(name).ttl(LONG).try_acquire().await.unwrap();
                assert!(next.is_some_and(|next| next.fence() > guard.fence()));
            }
        }
    }
}

/// Tasks of two processes that all want one lock: one at a time, with fences that grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_let_in_beside_a_bare_lock() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let stores = [advisory(&database), advisory(&database)];
    let (inside, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let until = now().plus(Duration::from_secs(3));
    let tasks: Vec<_> = (0..6_usize)
        .map(|task| {
            let locks = stores[task % 2].clone();
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            tokio::spawn(async move {
                let mut visits = 0;
                while now() < until {
                    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    let fence = guard.fence().get();
                    assert!(last.swap(fence, Ordering::SeqCst) < fence, "a fence went back");
                    tokio::task::yield_now().await;
                    inside.store(false, Ordering::SeqCst);
                    guard.release().await.unwrap();
                    visits += 1;
                    // Now and then nobody wants it, and then it is taken bare.
                    if fastrand::u8(..8) == 0 {
                        tokio::time::sleep(Duration::from_millis(fastrand::u64(..300))).await;
                    }
                }
                visits
            })
        })
        .collect();
    for task in tasks {
        assert!(within("it ends", task).await.unwrap() > 0, "one starved");
    }
}

/// A process that takes a lock over and over again lets others in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_starves_behind_who_takes_it_again_and_again() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database), advisory(&database));
    let over = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            while !over.load(Ordering::SeqCst) {
                let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        }
    });
    for _ in 0..5 {
        let guard = within("let in", spawn_acquire(others.lock(NAME).ttl(LONG))).await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    within("it ends", busy).await.unwrap();
}

/// A process that hangs with a bare lock never writes it down. It is disconnected, but not before its
/// guards are lost; who waits for the lock has it then. Who takes it by force is told so before.
#[tokio::test]
async fn a_holder_that_hangs_with_a_bare_lock_is_disconnected() {
    if skipped() {
        return;
    }
    for strategy in [Strategy::Retry, Strategy::ForceAcquire] {
        let database = Database::fresh();
        let store = sprag::open(&format!("{}?mode=advisory", database.url())).unwrap();
        let client = Client::builder(store).allow_force(true).build().unwrap();
        let key = advisory_key("default", NAME);
        let _psql = Psql::hold(
            &database,
            &format!(
                "SELECT sprag.begin_session_v1('hangs'), sprag.enter_v1('default', ''); \
                 SELECT sprag.take_bare_v1('default', '{NAME}', '{{}}', 'x', 30000, 9007199254740, \
                 {key})"
            ),
        );
        eventually("it has the key", async || !database.holders_of(key).is_empty()).await;
        let began = now();
        let acquired = async {
            loop {
                match client.lock(NAME).ttl(LONG).strategy(strategy).acquire().await {
                    Ok(guard) => break guard,
                    Err(error) => {
                        let told = error.to_string();
                        assert!(error.is_held() && told.contains("is disconnected in"), "{told}");
                    }
                }
            }
        };
        let guard = within("it is let in", acquired).await;
        assert!(now().since(began) >= Duration::from_secs(6), "{strategy:?}: too early");
        assert!(guard.is_valid());
    }
}

/// What happened to bare locks is in the trail: in order, and of everybody's.
#[tokio::test]
async fn bare_locks_are_in_the_trail() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let (locks, others) = (advisory(&database), advisory(&database));
    let mut fences = Vec::new();
    for _ in 0..50 {
        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        fences.extend([guard.fence(); 2]);
        guard.release().await.unwrap();
    }
    eventually("all are told", async || {
        let query = AuditQuery { limit: 1000, ..AuditQuery::default() };
        let told = others.audit(&query).await.unwrap();
        let mut told: Vec<_> = told.iter().map(|entry| entry.fence).collect();
        told.sort();
        told == fences
    })
    .await;
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    let told = locks.audit(&AuditQuery::default()).await.unwrap();
    assert_eq!(told.iter().filter(|entry| entry.fence == fence).count(), 2, "its own at once");
}
