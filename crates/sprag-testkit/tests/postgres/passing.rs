//! A lock that goes from one task of a process to the next before that is written to a PostgreSQL
//! server, and what may happen in between. Each test names its scenario of `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Loss, Store, advisory_key};
use sprag_core::store::{
    Attempt, Bind, Evicted, Eviction, Released as Freed, Renewal, Renewed, Request, Takeover,
};
use sprag_testkit::passing::{self, First, NAME, Process};
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::proxy::Proxy;
use sprag_testkit::support::{
    LONG, eventually, let_time_pass, look, name, now, request, spawn_acquire, until_unused,
    until_waiters, within,
};

/// A lease that ends within a test.
const SHORT: Duration = Duration::from_millis(900);
/// How long our clients wait for an answer in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);
const MODES: [&str; 2] = ["lease", "advisory"];

/// A database, and a network before it that can be broken.
struct Scene {
    database: Database,
    proxy: Proxy,
    mode: &'static str,
    /// A way past the proxy, to look at locks.
    store: Arc<dyn Store>,
}

impl Scene {
    /// Nothing if tests with PostgreSQL were declined.
    fn new(mode: &'static str) -> Option<Self> {
        if skipped() {
            return None;
        }
        let database = Database::fresh();
        let proxy = Proxy::start(format!("127.0.0.1:{}", database.port()));
        let store = sprag::open(&format!("{}{}", direct(&database), mode)).unwrap();
        Some(Self { database, proxy, mode, store })
    }

    /// The way through the proxy, which has to be able to read.
    fn url(&self) -> String {
        let (address, name, mode) = (self.proxy.address(), self.database.name(), self.mode);
        let timeout = TIMEOUT.as_millis();
        format!(
            "postgres://postgres@{address}/{name}?sslmode=disable&timeout_ms={timeout}&mode={mode}"
        )
    }

    /// A client behind the proxy. It listens: who has to wait before that asks once more, and who is let in
    /// by the answer to that is not told who comes next.
    async fn locks(&self) -> Locks {
        let locks = Locks::open(&self.url()).unwrap();
        if self.mode == "lease" {
            self.until_it_listens(&locks).await;
        }
        locks
    }

    async fn until_it_listens(&self, locks: &Locks) {
        let other = Locks::open(&self.database.url()).unwrap();
        let mut listens = false;
        while !listens {
            let guard = other.lock(NAME).ttl(LONG).acquire().await.unwrap();
            let waiting = spawn_acquire(locks.lock(NAME).ttl(LONG));
            until_waiters(locks.store(), NAME, 1).await;
            guard.release().await.unwrap();
            let released = now();
            within("handed over", waiting).await.unwrap().unwrap().release().await.unwrap();
            // Sooner than any timer.
            listens = now().since(released) < Duration::from_millis(100);
        }
    }

    /// Who has the session lock, by the server's own view.
    fn has_key(&self) -> String {
        self.database.holders_of(advisory_key("default", NAME))
    }
}

/// A way past the proxy, but for the mode.
fn direct(database: &Database) -> String {
    let url = database.url();
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}mode=")
}

fn scene<'a>(scene: &'a Scene, locks: &'a Locks) -> passing::Scene<'a> {
    passing::Scene { store: &scene.store, proxy: &scene.proxy, client: locks.client() }
}

async fn process(url: &str, ttls: [Duration; 3]) -> Process {
    Process::new(sprag::open(url).unwrap(), ttls).await
}

#[tokio::test]
async fn a_release_that_is_cut_off_after_the_heir_was_let_in_is_done() {
    let Some(place) = Scene::new("lease") else { return };
    scene(&place, &place.locks().await).a_release_that_is_cut_off_is_done(NAME).await;
}

#[tokio::test]
async fn an_heir_whose_predecessor_was_cut_off_is_renewed() {
    let Some(place) = Scene::new("lease") else { return };
    scene(&place, &place.locks().await).an_heir_whose_predecessor_was_cut_off_is_renewed().await;
}

#[tokio::test]
async fn a_release_that_is_cancelled_after_the_heir_was_let_in_is_done() {
    for mode in MODES {
        let Some(place) = Scene::new(mode) else { return };
        scene(&place, &place.locks().await).a_release_that_is_cancelled_is_done().await;
    }
}

/// F35: the session of both ends while the release is on its way: the heir, which is inside, is told.
#[tokio::test]
async fn an_heir_whose_session_ends_is_told() {
    let Some(place) = Scene::new("advisory") else { return };
    let locks = place.locks().await;
    let scene = scene(&place, &locks);
    let (holder, heir, last) = scene.promised().await;
    let (releasing, heir) = scene.pass_on(holder, heir).await;
    scene.proxy.reset_all();
    scene.proxy.heal();
    assert_eq!(within("told", heir.lost()).await, Loss::SessionDied);
    within("released", releasing).await.unwrap().unwrap();
    let fence = heir.fence();
    drop(heir);
    let last = within("granted", last).await.unwrap().unwrap();
    assert!(last.fence() > fence);
    last.release().await.unwrap();
    until_unused(scene.store, NAME).await;
}

#[tokio::test]
async fn an_heir_may_be_faster_than_who_let_it_in() {
    for (mode, first) in [
        ("lease", First::Release),
        ("lease", First::Detach),
        ("lease", First::Withdraw),
        ("advisory", First::Release),
        ("advisory", First::Withdraw),
    ] {
        let Some(place) = Scene::new(mode) else { return };
        let process = process(&place.url(), [LONG; 3]).await;
        process.an_heir_may_be_faster(first, &place.store).await;
        assert_eq!(place.has_key(), "", "{mode}, {first:?}");
    }
}

/// While the release is not written nobody else is let in, whatever becomes of who has left: its time
/// ends, or somebody breaks its lock. Of an advisory lock, other programs are kept out as well.
#[tokio::test]
async fn nobody_else_is_let_in_while_an_heir_is_inside() {
    for (mode, end) in
        [("lease", "expired"), ("lease", "broken"), ("advisory", "expired"), ("advisory", "broken")]
    {
        let Some(scene) = Scene::new(mode) else { return };
        let ttl = if end == "expired" { SHORT } else { LONG };
        let process = process(&scene.url(), [ttl, LONG, LONG]).await;
        let before = look(&scene.store, NAME).await.holders[0].fence;
        let fence = process.pass_on_only().await;
        assert!(fence > before);
        let urgent = Request { priority: 8, queue: true, ..request(NAME) };
        assert!(matches!(scene.store.try_acquire(&urgent).await.unwrap(), Attempt::Queued(_)));
        if end == "expired" {
            // Also that which looks for leases whose time is over has done so.
            let_time_pass(3 * SHORT).await;
        } else {
            let (by, reason) = ("ops".into(), "why".into());
            let eviction = Eviction { name: name(NAME), fence: before, by, reason };
            let broken = within("broken", scene.store.evict(&eviction)).await.unwrap();
            assert!(matches!(broken, Evicted::Broken(_)));
        }
        assert!(matches!(scene.store.try_acquire(&urgent).await.unwrap(), Attempt::Queued(_)));
        assert_eq!(scene.has_key() != "", mode == "advisory", "{end}");
        let view = look(&scene.store, NAME).await;
        assert_eq!(view.holders[0].fence, fence, "{mode}, {end}");
        // Now it comes, and takes nothing away.
        let gone = process.release(0).await;
        assert!(
            matches!(gone, Freed::AlreadyGone(Loss::Expired | Loss::Broken { .. })),
            "{gone:?}"
        );
        assert_eq!(scene.has_key() != "", mode == "advisory", "{end}");
        process.is_inside(fence).await;
        assert!(!process.store.is_severed(process.requests[1].lease));
        assert_eq!(process.release(1).await, Freed::Freed);
        // What was promised is kept; now the order of the queue counts again.
        let entered = || async {
            matches!(scene.store.try_acquire(&urgent).await.unwrap(), Attempt::Granted(_))
        };
        eventually("the important one is next", entered).await;
    }
}

/// Somebody takes the lock by force, and its holder does not know that and lets in the heir: the
/// heir is told as soon as the release is answered, long before its next renewal, and has the
/// smaller fence.
#[tokio::test]
async fn an_heir_that_is_inside_is_told_of_force() {
    for mode in MODES {
        let Some(scene) = Scene::new(mode) else { return };
        let process = process(&scene.url(), [LONG; 3]).await;
        let fence = process.pass_on_only().await;
        let heir = process.requests[1].lease;
        assert!(!process.store.is_severed(heir));
        let force = Request { takeover: Takeover::Force, ..request(NAME) };
        let thief = within("taken", scene.store.try_acquire(&force)).await.unwrap();
        assert!(matches!(thief, Attempt::Granted(grant) if grant.fence > fence), "{thief:?}");
        let gone = process.release(0).await;
        let robbed = matches!(gone, Freed::AlreadyGone(Loss::Stolen { forced: true, .. }));
        assert!(robbed, "{gone:?}");
        assert!(process.store.is_severed(heir), "{mode}");
        let lost = process.renew(1, Bind::Keep).await;
        assert!(matches!(lost, Renewed::Lost(Loss::Stolen { forced: true, .. })), "{lost:?}");
        assert!(matches!(process.release(1).await, Freed::AlreadyGone(_)), "{mode}");
        let asked = process.store.try_acquire(&process.requests[2]).await.unwrap();
        assert!(matches!(asked, Attempt::Queued(_)), "{asked:?}");
    }
}

/// F37: a promise is on the disk before anybody is told of it. The server crashes between the two, and
/// forgets the release: the heir keeps the lock, and nobody else gets it.
#[tokio::test]
async fn an_heir_keeps_the_lock_over_a_crash_of_the_server() {
    if skipped() {
        return;
    }
    let off = ["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s"];
    let mut server = PostgresServer::start(&off).await;
    server.sql("postgres", "CREATE TABLE witness (what text)");
    let url = server.url("postgres");
    let store = sprag::open(&url).unwrap();
    server.stop_writer();
    let process = process(&url, [LONG; 3]).await;
    let fence = process.pass_on_only().await;
    server.sql("postgres", "INSERT INTO witness VALUES ('x')");
    server.murder().await;
    server.start_again().await;
    let forgotten = server.sql("postgres", "SELECT count(*) FROM witness");
    assert_eq!(forgotten, "0", "nothing was forgotten: a weak test");
    let other = Request { priority: 8, queue: true, ..request(NAME) };
    let asked = || async { store.try_acquire(&other).await.is_ok() };
    eventually("the server answers", asked).await;
    let (by, reason) = ("ops".into(), "why".into());
    let before = look(&store, NAME).await.holders[0].fence;
    assert!(before < fence);
    // Not even when who has left is gone.
    let eviction = Eviction { name: name(NAME), fence: before, by, reason };
    store.evict(&eviction).await.unwrap();
    let asked = store.try_acquire(&other).await.unwrap();
    assert!(matches!(asked, Attempt::Queued(_)), "{asked:?}");
    let renewed = || async {
        let Request { name, lease, ttl, .. } = process.requests[1].clone();
        let renewal = Renewal { name, lease, ttl, bind: Bind::Keep };
        matches!(process.store.renew(&[renewal]).await.as_deref(),
            Ok([Renewed::Held(grant)]) if grant.fence == fence)
    };
    eventually("the heir is renewed", renewed).await;
    assert_eq!(process.release(1).await, Freed::Freed);
    let granted = store.try_acquire(&other).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(grant) if grant.fence > fence), "{granted:?}");
}
