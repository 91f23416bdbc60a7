//! The network before a session with advisory locks, broken on purpose. What is cut off ends its
//! session, and all its locks with it. Each test names its scenario of `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Loss, Store, advisory_key};
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::proxy::{Fault, Proxy};
use sprag_testkit::support::{
    LONG, eventually, is_unused, let_time_pass, look, now, request, spawn_acquire, until_unused,
    until_waiters, within,
};

/// How long our clients wait for an answer in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The lock of all tests; requests for it are found by its name.
const NAME: &str = "report";
/// What ends a connection, before or after the server has done what was asked.
const CUTS: [Fault; 4] =
    [Fault::CutReply(0), Fault::CutReply(3), Fault::CutRequest(0), Fault::CutRequest(40)];

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
        let store = sprag::open(&format!("{}?mode=advisory", database.url())).unwrap();
        Some(Self { database, proxy, store })
    }

    fn url(&self) -> String {
        let (address, name) = (self.proxy.address(), self.database.name());
        let timeout = TIMEOUT.as_millis();
        format!(
            "postgres://postgres@{address}/{name}?mode=advisory&sslmode=disable&timeout_ms={timeout}"
        )
    }

    /// A client behind the proxy.
    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
    }

    /// A client that does not go through the proxy.
    fn direct(&self) -> Locks {
        Locks::open(&format!("{}?mode=advisory", self.database.url())).unwrap()
    }

    /// Whether a session has the key of the lock.
    fn key_is_taken(&self) -> bool {
        !self.database.holders_of(advisory_key("default", NAME)).is_empty()
    }
}

/// F07: what was granted has ended with its session; the same attempt takes the lock once more.
#[tokio::test]
async fn an_acquire_whose_session_is_cut_off_takes_the_lock_again() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    let mut last = None;
    for cut in CUTS {
        scene.proxy.once(NAME, cut);
        let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
        let view = look(&scene.store, NAME).await;
        assert_eq!(view.holders.len(), 1, "{cut:?}");
        assert_eq!((view.holders[0].lease, view.fence), (guard.lease(), guard.fence()), "{cut:?}");
        assert!(last < Some(guard.fence()), "{cut:?}: the fence went back");
        assert!(guard.is_valid() && scene.key_is_taken(), "{cut:?}");
        last = Some(guard.fence());
        let released = guard.release().await.unwrap();
        assert!(is_unused(&scene.store, NAME).await, "{cut:?}: {released:?}");
        assert!(!scene.key_is_taken(), "{cut:?}: {released:?}");
        scene.proxy.heal();
    }
}

/// F07: in the first seconds of a server nobody counts as dead. Who was cut off and asks again has the
/// lock in its new session all the same, and is not taken for dead with the old one afterwards.
#[tokio::test]
async fn a_lease_belongs_to_the_session_that_it_is_asked_for_in() {
    if skipped() {
        return;
    }
    let server = PostgresServer::start(&["-c", "fsync=off"]).await;
    let proxy = Proxy::start(format!("127.0.0.1:{}", server.port()));
    let url = format!("postgres://postgres@{}/postgres?mode=advisory", proxy.address());
    let locks = Locks::open(&format!("{url}&sslmode=disable")).unwrap();
    proxy.once(NAME, Fault::CutReply(0));
    let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    let right = "SELECT count(*) FROM sprag.grips AS g JOIN pg_locks AS l USING (pid) \
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND g.name = 'report'";
    let has = async || server.sql("postgres", right) == "1";
    eventually("it is written down that its session has the key", has).await;
    let others = Locks::open(&format!("{}?mode=advisory", server.url("postgres"))).unwrap();
    let waiting = spawn_acquire(others.lock(NAME).ttl(LONG));
    // By then it is known who is dead.
    let old = "SELECT clock_timestamp() > pg_postmaster_start_time() + interval '8 s'";
    eventually("the server is old enough", async || server.sql("postgres", old) == "t").await;
    assert!(guard.is_valid() && !waiting.is_finished(), "two holders");
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = within("granted", waiting).await.unwrap().unwrap();
    assert!(next.fence() > fence);
}

/// F07: the same for a waiter, whose place ends with its session, while the lock is handed over.
#[tokio::test]
async fn a_waiter_whose_session_is_cut_off_is_granted() {
    let Some(scene) = Scene::new() else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    for cut in [Fault::CutReply(0), Fault::CutRequest(0)] {
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
        assert!(guard.is_valid() && scene.key_is_taken(), "{cut:?}");
        guard.release().await.unwrap();
        scene.proxy.heal();
    }
}

/// F07, FAULTS 2: an acquire that is given up while its reply is on the way leaves nothing behind.
#[tokio::test]
async fn an_acquire_of_an_advisory_lock_given_up_before_its_reply_is_undone() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    scene.proxy.once(NAME, Fault::FreezeReply);
    let acquire = tokio::spawn(locks.lock(NAME).ttl(LONG).acquire());
    let held = || async { look(&scene.store, NAME).await.is_locked() };
    eventually("the server has granted it", held).await;
    acquire.abort();
    until_unused(&scene.store, NAME).await;
    eventually("nobody has the key", async || !scene.key_is_taken()).await;
}

/// F08: whether it was done or its session ended, the lock is free.
#[tokio::test]
async fn a_release_whose_session_is_cut_off_frees_the_lock() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    for cut in CUTS {
        let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
        scene.proxy.times(2, NAME, cut);
        within("released", guard.release()).await.unwrap();
        until_unused(&scene.store, NAME).await;
        assert!(!scene.key_is_taken(), "{cut:?}");
        scene.proxy.heal();
    }
}

/// F35: the server hears that no more requests come, answers this one and ends the session: who was
/// just let in is told.
#[tokio::test]
async fn a_session_that_the_server_ends_after_its_answer_is_told() {
    let Some(scene) = Scene::new() else { return };
    let locks = scene.locks();
    scene.proxy.once(NAME, Fault::HalfClose);
    let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert_eq!(within("told", guard.lost()).await, Loss::SessionDied);
    eventually("nobody has the key", async || !scene.key_is_taken()).await;
    let again = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    assert!(again.fence() > guard.fence());
}

/// F09, F35: a session that is cut off at a renewal is over; its holder is told at once.
#[tokio::test]
async fn a_session_that_is_cut_off_at_a_renewal_is_told() {
    let Some(scene) = Scene::new() else { return };
    let (locks, others) = (scene.locks(), scene.direct());
    for cut in [Fault::CutReply(0), Fault::CutRequest(0)] {
        let ttl = Duration::from_secs(3);
        let guard = within("acquired", locks.lock(NAME).ttl(ttl).acquire()).await.unwrap();
        scene.proxy.once(NAME, cut);
        assert_eq!(within("told", guard.lost()).await, Loss::SessionDied, "{cut:?}");
        let next = within("the next", others.lock(NAME).ttl(LONG).acquire()).await.unwrap();
        assert!(next.fence() > guard.fence(), "{cut:?}");
        next.release().await.unwrap();
        scene.proxy.heal();
    }
}

/// F09, F36: the replies never come: nobody else is let in while the holder believes in its lock,
/// and it believes in it only until the server may have given it up.
#[tokio::test]
async fn replies_that_never_come_cost_an_advisory_lock_in_time() {
    let Some(scene) = Scene::new() else { return };
    let (locks, others) = (scene.locks(), scene.direct());
    let guard = within("acquired", locks.lock(NAME).ttl(LONG).acquire()).await.unwrap();
    let lost = now();
    scene.proxy.lose_everything();
    let watch = async {
        loop {
            let other = others.lock(NAME).try_acquire().await.unwrap();
            if !guard.is_valid() {
                break;
            }
            assert!(other.is_none(), "two holders");
            let_time_pass(TIMEOUT / 10).await;
        }
    };
    within("it gives up", watch).await;
    let after = now().since(lost);
    assert!(after < Duration::from_secs(7), "only after {after:?}");
    scene.proxy.heal();
    scene.proxy.reset_all();
    let again = || async { locks.lock(NAME).try_acquire().await.is_ok() };
    eventually("it goes on", again).await;
}

/// F31: a request that lay in the network until its caller gave up takes neither the lock nor its key.
#[tokio::test]
async fn an_acquire_of_an_advisory_lock_that_arrives_too_late_takes_nothing() {
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
    assert!(is_unused(&scene.store, NAME).await && !scene.key_is_taken(), "an orphan");
    assert!(scene.direct().lock(NAME).try_acquire().await.unwrap().is_some());
}
