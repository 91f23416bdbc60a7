//! A lock that goes from one task of a process to the next before that is written to a PostgreSQL
//! server, and what may happen in between. Each test names its scenario of `docs/faults.md`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use sprag::{Locks, Loss, Released, Store, advisory_key};
use sprag_core::store::{
    Attempt, Bind, Evicted, Eviction, Released as Freed, Renewal, Renewed, Request, Takeover,
};
use sprag_core::{Fence, LockGuard};
use sprag_testkit::postgres_server::{Database, PostgresServer, skipped};
use sprag_testkit::proxy::{Direction, Fault, Flow, Proxy};
use sprag_testkit::support::{
    LONG, eventually, let_time_pass, look, name, request, spawn_acquire, until_unused,
    until_waiters, within,
};
use tokio::task::JoinHandle;

/// A lease that ends within a test.
const SHORT: Duration = Duration::from_millis(900);
/// How long our clients wait for an answer in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);
const NAME: &str = "report";
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

    /// A client behind the proxy.
    fn locks(&self) -> Locks {
        Locks::open(&self.url()).unwrap()
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

type Waiting = JoinHandle<sprag_core::Result<LockGuard>>;
type Releasing = JoinHandle<sprag_core::Result<Released>>;

/// One client whose task was let in by another one, with two that wait behind it: it knows its heir.
async fn promised(scene: &Scene, locks: &Locks) -> (LockGuard, Waiting, Waiting) {
    let first = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=3 {
        waiting.push(spawn_acquire(locks.lock(NAME).ttl(LONG)));
        until_waiters(&scene.store, NAME, count).await;
    }
    first.release().await.unwrap();
    let mut waiting = waiting.into_iter();
    let holder = within("handed over", waiting.next().unwrap()).await.unwrap().unwrap();
    (holder, waiting.next().unwrap(), waiting.next().unwrap())
}

/// Stops what is sent, lets `holder` give the lock back, and gives out the guard of its heir, which
/// the server has not heard of.
async fn pass_on(scene: &Scene, holder: LockGuard, heir: Waiting) -> (Releasing, LockGuard) {
    let lease = holder.lease();
    scene.proxy.set(Direction::Request, Flow::Frozen);
    let releasing = tokio::spawn(holder.release());
    let heir = within("let in", heir).await.unwrap().unwrap();
    let holders = look(&scene.store, NAME).await.holders;
    assert_eq!(holders[0].lease, lease, "the server does not know yet");
    (releasing, heir)
}

async fn is_held_by(scene: &Scene, guard: &LockGuard) {
    let holds = || async {
        let holders = look(&scene.store, NAME).await.holders;
        holders.len() == 1 && (holders[0].lease, holders[0].fence) == (guard.lease(), guard.fence())
    };
    eventually("the server knows it", holds).await;
}

/// F07, F08: the connection is cut between the two, in every way: the release is repeated, the heir is
/// let in once and stays inside, and the next one comes after it.
#[tokio::test]
async fn a_release_that_is_cut_off_after_the_heir_was_let_in_is_done() {
    let Some(scene) = Scene::new("lease") else { return };
    let locks = scene.locks();
    for cut in Fault::CUTS {
        let (holder, heir, last) = promised(&scene, &locks).await;
        let fence = holder.fence();
        scene.proxy.once(NAME, cut);
        let releasing = tokio::spawn(holder.release());
        let heir = within("let in", heir).await.unwrap().unwrap();
        assert!(heir.fence() > fence, "{cut:?}");
        let released = within("released", releasing).await.unwrap().unwrap();
        assert_eq!(released, Released::Freed, "{cut:?}");
        is_held_by(&scene, &heir).await;
        assert!(!last.is_finished() && heir.is_valid(), "{cut:?}");
        let fence = heir.fence();
        assert_eq!(heir.release().await.unwrap(), Released::Freed, "{cut:?}");
        let last = within("handed over", last).await.unwrap().unwrap();
        assert!(last.fence() > fence, "{cut:?}");
        last.release().await.unwrap();
        until_unused(&scene.store, NAME).await;
        scene.proxy.heal();
    }
}

/// F08: all connections end while the release is on its way, and the heir, which is inside, is renewed.
#[tokio::test]
async fn an_heir_whose_predecessor_was_cut_off_is_renewed() {
    let Some(scene) = Scene::new("lease") else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    let (releasing, mut heir) = pass_on(&scene, holder, heir).await;
    scene.proxy.reset_all();
    scene.proxy.heal();
    // What was asked while the connection ended is asked again.
    let renewed = async {
        while heir.extend(LONG).await.is_err() {
            assert!(heir.is_valid());
        }
    };
    within("renewed", renewed).await;
    is_held_by(&scene, &heir).await;
    assert_eq!(within("released", releasing).await.unwrap().unwrap(), Released::Freed);
    heir.release().await.unwrap();
    within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
    until_unused(&scene.store, NAME).await;
}

/// F35: the session of both ends while the release is on its way: the heir, which is inside, is told.
#[tokio::test]
async fn an_heir_whose_session_ends_is_told() {
    let Some(scene) = Scene::new("advisory") else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    let (releasing, heir) = pass_on(&scene, holder, heir).await;
    scene.proxy.reset_all();
    scene.proxy.heal();
    assert_eq!(within("told", heir.lost()).await, Loss::SessionDied);
    within("released", releasing).await.unwrap().unwrap();
    let fence = heir.fence();
    drop(heir);
    let last = within("granted", last).await.unwrap().unwrap();
    assert!(last.fence() > fence);
    last.release().await.unwrap();
    until_unused(&scene.store, NAME).await;
}

/// A release whose caller goes away when the heir was let in is done all the same.
#[tokio::test]
async fn a_release_that_is_cancelled_after_the_heir_was_let_in_is_done() {
    for mode in MODES {
        let Some(scene) = Scene::new(mode) else { return };
        let locks = scene.locks();
        let (holder, heir, last) = promised(&scene, &locks).await;
        // It lets its heir in, and lets it run before it sends anything.
        assert!(holder.release().now_or_never().is_none());
        let heir = within("let in", heir).await.unwrap().unwrap();
        is_held_by(&scene, &heir).await;
        assert!(!last.is_finished());
        heir.release().await.unwrap();
        within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
        until_unused(&scene.store, NAME).await;
    }
}

/// What the leases of one process ask of the store.
struct Process {
    store: Arc<dyn Store>,
    /// Who was let in, its heir, and one more.
    requests: [Request; 3],
}

impl Process {
    /// Its leases live for so long. The first one was let in.
    async fn new(url: &str, ttls: [Duration; 3]) -> Self {
        let store = sprag::open(url).unwrap();
        let first = request(NAME);
        let requests = ttls.map(|ttl| Request { ttl, queue: true, ..request(NAME) });
        assert!(matches!(store.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
        for request in &requests {
            assert!(matches!(store.try_acquire(request).await.unwrap(), Attempt::Queued(_)));
        }
        assert_eq!(store.release(&name(NAME), first.lease).await.unwrap(), Freed::Freed);
        let process = Self { store, requests };
        process.enter(0).await;
        process
    }

    async fn enter(&self, index: usize) -> Fence {
        match self.store.try_acquire(&self.requests[index]).await.unwrap() {
            Attempt::Granted(grant) => grant.fence,
            other => panic!("not let in: {other:?}"),
        }
    }

    /// Lets its heir in, and is gone before its release is sent. Gives out the fence of the heir.
    async fn pass_on_only(&self) -> Fence {
        let lease = self.requests[0].lease;
        assert!(self.store.release(&name(NAME), lease).now_or_never().is_none());
        self.enter(1).await
    }

    async fn release(&self, index: usize) -> Freed {
        self.store.release(&name(NAME), self.requests[index].lease).await.unwrap()
    }

    async fn renew(&self, index: usize, bind: Bind) -> Renewed {
        let Request { name, lease, ttl, .. } = self.requests[index].clone();
        let mut renewed = self.store.renew(&[Renewal { name, lease, ttl, bind }]).await.unwrap();
        renewed.pop().unwrap()
    }

    /// The heir holds the lock, with this fence.
    async fn is_inside(&self, fence: Fence) {
        match self.renew(1, Bind::Keep).await {
            Renewed::Held(grant) => assert_eq!(grant.fence, fence),
            other => panic!("{other:?}"),
        }
    }
}

/// Whatever is asked for an heir, or for whom, first: the row comes to the same, and nobody else is
/// let in.
#[tokio::test]
async fn an_heir_may_be_faster_than_who_let_it_in() {
    for (mode, first) in [
        ("lease", "release"),
        ("lease", "detach"),
        ("lease", "withdraw"),
        ("advisory", "release"),
        ("advisory", "withdraw"),
    ] {
        let Some(scene) = Scene::new(mode) else { return };
        let process = Process::new(&scene.url(), [LONG; 3]).await;
        let fence = process.pass_on_only().await;
        match first {
            "release" => assert_eq!(process.release(1).await, Freed::Freed),
            "detach" => match process.renew(1, Bind::Detach).await {
                Renewed::Held(grant) => assert_eq!(grant.fence, fence),
                other => panic!("{other:?}"),
            },
            _ => {
                let lease = process.requests[1].lease;
                process.store.withdraw(&name(NAME), lease).await.unwrap();
            }
        }
        let view = look(&scene.store, NAME).await;
        assert_eq!(view.holders.len(), 1, "{mode}, {first}");
        if first != "release" {
            assert_eq!(view.holders[0].lease, process.requests[1].lease, "{mode}, {first}");
        }
        process.release(0).await;
        if first != "release" {
            assert_eq!(process.release(1).await, Freed::Freed, "{mode}, {first}");
        }
        assert!(process.enter(2).await > fence, "{mode}, {first}");
        assert_eq!(process.release(2).await, Freed::Freed, "{mode}, {first}");
        until_unused(&scene.store, NAME).await;
        assert_eq!(scene.has_key(), "", "{mode}, {first}");
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
        let process = Process::new(&scene.url(), [ttl, LONG, LONG]).await;
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
        let process = Process::new(&scene.url(), [LONG; 3]).await;
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
    let process = Process::new(&url, [LONG; 3]).await;
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
