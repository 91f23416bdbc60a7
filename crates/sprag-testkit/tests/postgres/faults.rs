//! The network before a PostgreSQL server, broken on purpose. Each test names its scenario of
//! `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{LockState, Locks, Released, Store};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::proxy::{Fault, Proxy};
use sprag_testkit::support::{
    LONG, eventually, is_unused, let_time_pass, look, now, request, spawn_acquire, until_unused,
    until_waiters, within,
};

/// A lease that ends within a test. Long enough for ten requests under load.
const SHORT: Duration = Duration::from_millis(900);

/// How long our clients wait for an answer in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The lock of all tests; requests for it are found by its name.
const NAME: &str = "report";

/// A database, and a network before it that can be broken.
struct Scene {
    database: Database,
    proxy: Proxy,
    /// A way past the proxy, to look at locks.
    store: Arc<dyn Store>,
}

impl Scene {
    /// Nothing if tests with PostgreSQL were declined.
    fn new() -> Option<Self> {
        if skipped() {
            return None;
        }
        let database = Database::fresh();
        let proxy = Proxy::start(format!("127.0.0.1:{}", database.port()));
        let store = sprag::open(&database.url()).unwrap();
        Some(Self { database, proxy, store })
    }

    /// The way through the proxy, which has to be able to read.
    fn url(&self) -> String {
        let (address, name) = (self.proxy.address(), self.database.name());
        let timeout = TIMEOUT.as_millis();
        format!("postgres://postgres@{address}/{name}?sslmode=disable&timeout_ms={timeout}")
    }

    /// A client behind the proxy.
    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
    }

    /// A client that does not go through the proxy.
    fn direct(&self) -> Locks {
        Locks::open(&self.database.url()).unwrap()
    }
}

/// F07: the same attempt finds its grant, with validity counted from the first request.
#[tokio::test]
async fn an_acquire_that_is_cut_off_finds_its_own_grant() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    let mut last = None;
    for cut in Fault::CUTS {
        scene.proxy.once(NAME, cut);
        let sent = now();
        let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
        assert!(guard.valid_until() < sent.plus(LONG), "{cut:?}: counted from a later request");
        let view = look(&scene.store, NAME).await;
        assert_eq!(view.holders.len(), 1, "{cut:?}");
        assert_eq!((view.holders[0].lease, view.fence), (guard.lease(), guard.fence()), "{cut:?}");
        assert!(last < Some(guard.fence()), "{cut:?}: the fence went back");
        last = Some(guard.fence());
        assert_eq!(guard.release().await.unwrap(), Released::Freed, "{cut:?}");
        assert!(is_unused(&scene.store, NAME).await, "{cut:?}");
    }
}

/// F07: the same for a waiter that is handed the lock while its connection is cut.
#[tokio::test]
async fn a_waiter_that_is_cut_off_finds_its_own_grant() {
    let Some(scene) = Scene::new() else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    for cut in [Fault::CutReply(0), Fault::CutRequest(0), Fault::LoseReply] {
        let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
        scene.proxy.once(NAME, cut);
        let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
        until_waiters(&scene.store, NAME, 1).await;
        scene.proxy.times(2, NAME, cut);
        guard.release().await.unwrap();
        let guard = within("granted", waiting).await.unwrap().unwrap();
        let view = look(&scene.store, NAME).await;
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0), "{cut:?}");
        assert_eq!(view.holders[0].fence, guard.fence(), "{cut:?}");
        guard.release().await.unwrap();
        scene.proxy.heal();
    }
}

/// F07, FAULTS 2: an acquire that is given up while its reply is on the way leaves nothing behind.
#[tokio::test]
async fn an_acquire_given_up_before_its_reply_is_undone() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    scene.proxy.once(NAME, Fault::FreezeReply);
    let acquire = tokio::spawn(locks.lock(NAME).ttl(LONG).acquire());
    let held = || async { look(&scene.store, NAME).await.is_locked() };
    eventually("the server has granted it", held).await;
    acquire.abort();
    until_unused(&scene.store, NAME).await;
}

/// F08: asked again, and it counts as done.
#[tokio::test]
async fn a_release_that_is_cut_off_is_done() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    for cut in Fault::CUTS {
        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        scene.proxy.times(2, NAME, cut);
        let released = within("released", guard.release()).await.unwrap();
        assert_eq!(released, Released::Freed, "{cut:?}");
        assert!(is_unused(&scene.store, NAME).await, "{cut:?}");
        scene.proxy.heal();

        let dropped = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        scene.proxy.once(NAME, cut);
        drop(dropped);
        until_unused(&scene.store, NAME).await;
        scene.proxy.heal();
    }
}

/// F09: suspect, and then held again, because the next renewal comes through.
#[tokio::test]
async fn renewals_that_are_cut_off_are_repeated() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    for cut in [Fault::CutReply(0), Fault::CutRequest(0)] {
        let guard = locks.lock(NAME).ttl(3 * SHORT).acquire().await.unwrap();
        let before = guard.valid_until();
        scene.proxy.times(2, NAME, cut);
        eventually("suspect", || async { guard.state() == LockState::Suspect }).await;
        eventually("held again", || async { guard.state() == LockState::Held }).await;
        assert!(guard.valid_until() > before);
        assert_eq!(look(&scene.store, NAME).await.holders[0].lease, guard.lease());
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        scene.proxy.heal();
    }
}

/// F09: the renewals reach the server and no reply comes back: the lock is lost at the deadline
/// of the last reply, and never believed in beyond it.
#[tokio::test]
async fn replies_to_renewals_that_never_come_cost_the_lock_in_time() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    let guard = locks.lock(NAME).ttl(SHORT).acquire().await.unwrap();
    scene.proxy.times(usize::MAX, NAME, Fault::LoseReply);
    let watch = async {
        loop {
            let (asked, valid) = (now(), guard.is_valid());
            assert!(!valid || asked < guard.valid_until(), "believed in for too long");
            if !valid {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(now() < guard.valid_until().plus(SHORT), "told too late");
    };
    within("lost", watch).await;
    scene.proxy.heal();
    until_unused(&scene.store, NAME).await;
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
}

/// F10, F42: the connection for wake-ups is cut at the hand-over; the timer finds the grant.
#[tokio::test]
async fn a_wake_up_that_is_lost_costs_time_and_not_the_lock() {
    let Some(scene) = Scene::new() else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
    until_waiters(&scene.store, NAME, 1).await;
    eventually("it listens", || async { scene.proxy.saw("LISTEN") == 1 }).await;
    scene.proxy.reset_all();
    guard.release().await.unwrap();
    within("granted", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// F31: a request that lay in the network until its caller gave up does not take the lock.
#[tokio::test]
async fn an_acquire_that_arrives_too_late_takes_nothing() {
    let Some(scene) = Scene::new() else { return };
    let store = sprag::open(&scene.url()).unwrap();
    scene.proxy.once(NAME, Fault::FreezeRequest);
    let error = store.try_acquire(&request(NAME)).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_indeterminate(), "{error:?}");
    // By then it is too late by the server's clock, too.
    let_time_pass(TIMEOUT / 5).await;
    scene.proxy.heal();
    // What comes after it on the same way is answered after it.
    within("it goes on", store.inspect(&request(NAME).name)).await.unwrap();
    let_time_pass(TIMEOUT / 5).await;
    assert!(is_unused(&scene.store, NAME).await, "an orphan");
    assert!(scene.direct().lock(NAME).try_acquire().await.unwrap().is_some());
}

/// The server is there and silent: requests fail in time, and pass when it answers again.
#[tokio::test]
async fn a_network_that_swallows_everything_is_told_in_time() {
    let Some(scene) = Scene::new() else { return };
    let store = sprag::open(&scene.url()).unwrap();
    scene.proxy.lose_everything();
    let asked = now();
    for _ in 0..2 {
        let error = store.try_acquire(&request(NAME)).await.unwrap_err();
        assert!(error.is_unavailable() && error.is_indeterminate(), "{error:?}");
    }
    assert!(now().since(asked) < 4 * TIMEOUT, "{:?}", now().since(asked));
    scene.proxy.heal();
    scene.proxy.reset_all();
    let answers = || async { store.try_acquire(&request(NAME)).await.is_ok() };
    eventually("it goes on", answers).await;
}

/// Whoever is handed the lock is told its fence, and asks nobody before it enters.
#[tokio::test]
async fn a_grant_is_carried_by_its_wake_up() {
    let Some(scene) = Scene::new() else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    let round = || async {
        let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
        let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
        until_waiters(&scene.store, NAME, 1).await;
        eventually("it listens", || async { scene.proxy.saw("LISTEN") == 1 }).await;
        let asked = scene.proxy.saw(NAME);
        guard.release().await.unwrap();
        let guard = within("granted", waiting).await.unwrap().unwrap();
        assert_eq!(look(&scene.store, NAME).await.holders[0].fence, guard.fence());
        let silent = scene.proxy.saw(NAME) == asked;
        guard.release().await.unwrap();
        silent
    };
    // On a slow machine the timer may come first.
    eventually("nothing was asked", round).await;
}
