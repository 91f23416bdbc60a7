//! A lock that goes from one task of a process to the next before that is written, and what may
//! happen in between.

use std::sync::Arc;

use futures_util::FutureExt as _;
use sprag::{Locks, Loss, Released, Store, Strategy};
use sprag_core::store::{Attempt, Bind, Released as Freed, Renewal, Renewed, Request};
use sprag_core::{Client, Fence, LockGuard};
use sprag_testkit::proxy::{Direction, Fault, Flow};
use sprag_testkit::support::{
    LONG, eventually, let_time_pass, look, name, request, spawn_acquire, until_unused,
    until_waiters, within,
};
use tokio::task::JoinHandle;

use super::{SHORT, Scene};

type Waiting = JoinHandle<sprag_core::Result<LockGuard>>;

/// One client whose task was let in by another one, with two that wait behind it: it knows its heir.
async fn promised(scene: &Scene, locks: &Locks) -> (LockGuard, Waiting, Waiting) {
    let first = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for count in 1..=3 {
        waiting.push(spawn_acquire(locks.lock("report").ttl(LONG)));
        until_waiters(&scene.store, "report", count).await;
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
    let holders = look(&scene.store, "report").await.holders;
    assert_eq!(holders[0].lease, lease, "the server does not know yet");
    (releasing, heir)
}

type Releasing = JoinHandle<sprag_core::Result<Released>>;

async fn is_held_by(scene: &Scene, guard: &LockGuard) {
    let holds = || async {
        let holders = look(&scene.store, "report").await.holders;
        holders.len() == 1 && (holders[0].lease, holders[0].fence) == (guard.lease(), guard.fence())
    };
    eventually("the server knows it", holds).await;
}

/// F07, F08: the connection is cut between the two, in every way: the release is repeated, the heir is
/// let in once and stays inside, and the next one comes after it.
#[tokio::test]
async fn a_release_that_is_cut_off_after_the_heir_was_let_in_is_done() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    for cut in Fault::CUTS {
        let (holder, heir, last) = promised(&scene, &locks).await;
        let fence = holder.fence();
        scene.proxy.once("release", cut);
        let releasing = tokio::spawn(holder.release());
        let heir = within("let in", heir).await.unwrap().unwrap();
        assert!(heir.fence() > fence, "{cut:?}");
        assert_eq!(
            within("released", releasing).await.unwrap().unwrap(),
            Released::Freed,
            "{cut:?}"
        );
        is_held_by(&scene, &heir).await;
        assert!(!last.is_finished() && heir.is_valid(), "{cut:?}");
        let fence = heir.fence();
        assert_eq!(heir.release().await.unwrap(), Released::Freed, "{cut:?}");
        let last = within("handed over", last).await.unwrap().unwrap();
        assert!(last.fence() > fence, "{cut:?}");
        last.release().await.unwrap();
        until_unused(&scene.store, "report").await;
        scene.proxy.heal();
    }
}

/// F08: all connections end while the release is on its way, and the heir, which is inside, is renewed.
#[tokio::test]
async fn an_heir_whose_predecessor_was_cut_off_is_renewed() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    let (releasing, mut heir) = pass_on(&scene, holder, heir).await;
    scene.proxy.reset_all();
    scene.proxy.heal();
    let renewed = async {
        while let Err(error) = heir.extend(LONG).await {
            assert!(error.is_indeterminate(), "{error:?}");
        }
    };
    within("renewed", renewed).await;
    is_held_by(&scene, &heir).await;
    assert_eq!(within("released", releasing).await.unwrap().unwrap(), Released::Freed);
    heir.release().await.unwrap();
    within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
    until_unused(&scene.store, "report").await;
}

/// A release whose caller goes away when the heir was let in is done all the same.
#[tokio::test]
async fn a_release_that_is_cancelled_after_the_heir_was_let_in_is_done() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    // It lets its heir in, and lets it run before it sends anything.
    assert!(holder.release().now_or_never().is_none());
    let heir = within("let in", heir).await.unwrap().unwrap();
    is_held_by(&scene, &heir).await;
    assert!(!last.is_finished());
    // An heir that leaves while its predecessor's release is on the way comes right behind it.
    heir.release().await.unwrap();
    within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
    until_unused(&scene.store, "report").await;
}

/// Somebody takes the lock by force while its holder lets in the heir: the heir is told as soon as
/// the release is answered, long before its next renewal, and has the smaller fence.
#[tokio::test]
async fn an_heir_that_was_let_in_after_force_is_told_at_once() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    let (releasing, heir) = pass_on(&scene, holder, heir).await;
    let thief = Client::builder(Arc::clone(&scene.store)).allow_force(true).build().unwrap();
    let thief = thief.lock("report").strategy(Strategy::ForceAcquire).ttl(LONG).acquire().await;
    let thief = thief.unwrap();
    assert!(thief.fence() > heir.fence());
    scene.proxy.heal();
    within("told", heir.lost()).await;
    assert!(!heir.is_valid());
    let stolen = within("released", releasing).await.unwrap().unwrap();
    assert!(
        matches!(stolen, Released::AlreadyLost(Loss::Stolen { forced: true, .. })),
        "{stolen:?}"
    );
    assert!(matches!(heir.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(thief.is_valid() && !last.is_finished());
    thief.release().await.unwrap();
    within("handed over", last).await.unwrap().unwrap().release().await.unwrap();
    until_unused(&scene.store, "report").await;
}

/// Somebody deletes everything while the holder lets in the heir: it is told as soon as the
/// release is answered.
#[tokio::test]
async fn an_heir_of_a_server_that_forgot_the_lock_is_told_at_once() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let (holder, heir, last) = promised(&scene, &locks).await;
    let (releasing, heir) = pass_on(&scene, holder, heir).await;
    scene.server.ask(&["FLUSHALL"]);
    scene.proxy.heal();
    within("told", heir.lost()).await;
    within("released", releasing).await.unwrap().unwrap();
    heir.release().await.unwrap();
    within("granted", last).await.unwrap().unwrap().release().await.unwrap();
    until_unused(&scene.store, "report").await;
}

/// What the leases of one process ask of the store.
struct Process {
    store: Arc<dyn Store>,
    /// Who was let in, its heir, and one more.
    requests: [Request; 3],
}

impl Process {
    /// Its leases live for so long. The first one was let in.
    async fn new(scene: &Scene, ttls: [std::time::Duration; 3]) -> Self {
        let store = sprag::open(&scene.url()).unwrap();
        let first = request("report");
        let requests = ttls.map(|ttl| Request { ttl, queue: true, ..request("report") });
        assert!(matches!(store.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
        for request in &requests {
            assert!(matches!(store.try_acquire(request).await.unwrap(), Attempt::Queued(_)));
        }
        assert_eq!(store.release(&name("report"), first.lease).await.unwrap(), Freed::Freed);
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

    /// Lets its heir in, and is gone before its release is sent.
    fn pass_on_only(&self, index: usize) {
        let lease = self.requests[index].lease;
        assert!(self.store.release(&name("report"), lease).now_or_never().is_none());
    }

    async fn release(&self, index: usize) -> Freed {
        self.store.release(&name("report"), self.requests[index].lease).await.unwrap()
    }

    async fn renew(&self, index: usize, bind: Bind) -> Renewed {
        let Request { name, lease, ttl, .. } = self.requests[index].clone();
        let mut renewed = self.store.renew(&[Renewal { name, lease, ttl, bind }]).await.unwrap();
        renewed.pop().unwrap()
    }
}

/// Another program, which sees nothing but the plain key, is kept out for as long as the heir may
/// believe in its lease: it counts from its last question, and longer than the holder of before.
#[tokio::test]
async fn another_program_is_kept_out_while_an_heir_is_inside() {
    let Some(scene) = Scene::new().await else { return };
    for asks_again in [false, true] {
        // The heir lives for longer, or counts from a question that was asked later.
        let ttls = if asks_again { [3 * SHORT; 2] } else { [SHORT, 4 * SHORT] };
        let process = Process::new(&scene, [ttls[0], ttls[1], LONG]).await;
        if asks_again {
            let_time_pass(SHORT * 2).await;
            let asked = process.store.try_acquire(&process.requests[1]).await.unwrap();
            assert!(matches!(asked, Attempt::Queued(_)));
        }
        process.pass_on_only(0);
        let fence = process.enter(1).await;
        // The lease of the one that has left is over; nobody has told the server that it has left.
        let_time_pass(SHORT * 2).await;
        assert_eq!(scene.server.ask(&["SET", "sprag:report", "x", "NX", "PX", "1000"]), "");
        match process.renew(1, Bind::Keep).await {
            Renewed::Held(grant) => assert_eq!(grant.fence, fence),
            other => panic!("asks again: {asks_again}, {other:?}"),
        }
        let lease = process.requests[1].lease.to_string();
        assert_eq!(scene.server.ask(&["GET", "sprag:report"]), lease);
        assert_eq!(process.release(1).await, Freed::Freed);
        process.enter(2).await;
        assert_eq!(process.release(2).await, Freed::Freed);
        until_unused(&scene.store, "report").await;
    }
}

/// Whatever is asked for an heir, or for whom, first: the record comes to the same, and nobody else is
/// let in.
#[tokio::test]
async fn an_heir_may_be_faster_than_who_let_it_in() {
    let Some(scene) = Scene::new().await else { return };
    for first in ["release", "detach", "withdraw"] {
        let process = Process::new(&scene, [LONG; 3]).await;
        process.pass_on_only(0);
        let fence = process.enter(1).await;
        match first {
            "release" => assert_eq!(process.release(1).await, Freed::Freed),
            "detach" => match process.renew(1, Bind::Detach).await {
                Renewed::Held(grant) => assert_eq!(grant.fence, fence),
                other => panic!("{other:?}"),
            },
            _ => {
                let lease = process.requests[1].lease;
                process.store.withdraw(&name("report"), lease).await.unwrap();
            }
        }
        let view = look(&scene.store, "report").await;
        assert_eq!(view.holders.len(), 1, "{first}");
        if first != "release" {
            assert_eq!(view.holders[0].lease, process.requests[1].lease, "{first}");
        }
        process.release(0).await;
        if first != "release" {
            assert_eq!(process.release(1).await, Freed::Freed, "{first}");
        }
        assert!(process.enter(2).await > fence, "{first}");
        assert_eq!(process.release(2).await, Freed::Freed, "{first}");
        until_unused(&scene.store, "report").await;
    }
}
