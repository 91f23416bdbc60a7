//! Requests and replies that are cut, lost, late or doubled between us and the server.

use sprag::{LockState, Released};
use sprag_testkit::proxy::{Captured, Fault};
use sprag_testkit::support::{
    LONG, eventually, is_unused, let_time_pass, look, now, spawn_acquire, until_unused,
    until_waiters, within,
};

use super::{SHORT, Scene, TIMEOUT};

/// F07: the same attempt finds its grant, with validity counted from the first request.
#[tokio::test]
async fn an_acquire_that_is_cut_off_finds_its_own_grant() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let mut last = None;
    for cut in Fault::CUTS {
        scene.proxy.once("sprag:report", cut);
        let sent = now();
        let guard = within("acquired", locks.lock("report").ttl(LONG).acquire()).await.unwrap();
        assert!(guard.valid_until() < sent.plus(LONG), "{cut:?}: counted from a later request");
        let view = look(&scene.store, "report").await;
        assert_eq!(view.holders.len(), 1, "{cut:?}");
        assert_eq!((view.holders[0].lease, view.fence), (guard.lease(), guard.fence()), "{cut:?}");
        assert!(last < Some(guard.fence()), "{cut:?}: the fence went back");
        last = Some(guard.fence());
        assert_eq!(guard.release().await.unwrap(), Released::Freed, "{cut:?}");
        assert!(is_unused(&scene.store, "report").await, "{cut:?}");
    }
}

/// F07: the same for a waiter that is handed the lock while its connection is cut.
#[tokio::test]
async fn a_waiter_that_is_cut_off_finds_its_own_grant() {
    let Some(scene) = Scene::new().await else { return };
    let (holder, locks) = (scene.direct(), scene.locks());
    for cut in [Fault::CutReply(0), Fault::CutRequest(0), Fault::LoseReply] {
        let guard = holder.lock("report").ttl(LONG).acquire().await.unwrap();
        scene.proxy.once("sprag:report", cut);
        let waiting = spawn_acquire(locks.lock("report").ttl(LONG));
        until_waiters(&scene.store, "report", 1).await;
        scene.proxy.times(2, "sprag:report", cut);
        guard.release().await.unwrap();
        let guard = within("granted", waiting).await.unwrap().unwrap();
        let view = look(&scene.store, "report").await;
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0), "{cut:?}");
        assert_eq!(view.holders[0].fence, guard.fence(), "{cut:?}");
        guard.release().await.unwrap();
        scene.proxy.heal();
    }
}

/// F07, FAULTS 2: an acquire that is given up while its reply is on the way leaves nothing behind.
#[tokio::test]
async fn an_acquire_given_up_before_its_reply_is_undone() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    scene.proxy.once("sprag:report", Fault::FreezeReply);
    let acquire = tokio::spawn(locks.lock("report").ttl(LONG).acquire());
    let held = || async { look(&scene.store, "report").await.is_locked() };
    eventually("the server has granted it", held).await;
    acquire.abort();
    until_unused(&scene.store, "report").await;
}

/// F08: asked again, and it counts as done.
#[tokio::test]
async fn a_release_that_is_cut_off_is_done() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    for cut in Fault::CUTS {
        let guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
        scene.proxy.times(2, "sprag:report", cut);
        let released = within("released", guard.release()).await.unwrap();
        assert_eq!(released, Released::Freed, "{cut:?}");
        assert!(is_unused(&scene.store, "report").await, "{cut:?}");
        scene.proxy.heal();

        let dropped = locks.lock("report").ttl(LONG).acquire().await.unwrap();
        scene.proxy.once("sprag:report", cut);
        drop(dropped);
        until_unused(&scene.store, "report").await;
        scene.proxy.heal();
    }
}

/// F09: suspect, and then held again, because the next renewal comes through.
#[tokio::test]
async fn renewals_that_are_cut_off_are_repeated() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    for cut in [Fault::CutReply(0), Fault::CutRequest(0)] {
        let guard = locks.lock("report").ttl(3 * SHORT).acquire().await.unwrap();
        let before = guard.valid_until();
        scene.proxy.times(2, "sprag:report", cut);
        eventually("suspect", || async { guard.state() == LockState::Suspect }).await;
        eventually("held again", || async { guard.state() == LockState::Held }).await;
        assert!(guard.valid_until() > before);
        assert_eq!(look(&scene.store, "report").await.holders[0].lease, guard.lease());
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        scene.proxy.heal();
    }
}

/// F09: the renewals reach the server and no reply comes back: the lock is lost at the deadline
/// of the last reply, and never believed in beyond it.
#[tokio::test]
async fn replies_to_renewals_that_never_come_cost_the_lock_in_time() {
    let Some(scene) = Scene::new().await else { return };
    let locks = scene.locks();
    let guard = locks.lock("report").ttl(SHORT).acquire().await.unwrap();
    scene.proxy.times(usize::MAX, "sprag:report", Fault::LoseReply);
    let lost = guard.lost();
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
        guard.valid_until()
    };
    let believed_until = within("lost", watch).await;
    within("told", lost).await;
    let_time_pass(SHORT / 3).await;
    assert!(!guard.is_valid() && guard.valid_until() == believed_until, "it came back");
    scene.proxy.heal();
    until_unused(&scene.store, "report").await;
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
}

/// F31: a request that lay in the network until its caller gave up does not take the lock.
#[tokio::test]
async fn an_acquire_that_arrives_too_late_takes_nothing() {
    let Some(scene) = Scene::new().await else { return };
    let store = sprag::open(&scene.url()).unwrap();
    scene.proxy.once("sprag:report", Fault::FreezeRequest);
    let request = sprag_testkit::support::request("report");
    let error = store.try_acquire(&request).await.unwrap_err();
    assert!(error.is_unavailable() && error.is_indeterminate(), "{error:?}");
    // By then it is too late by the server's clock, too.
    let_time_pass(TIMEOUT / 5).await;
    let done = || {
        let stats = scene.server.ask(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"))?;
        line.split(['=', ',']).nth(1)?.parse::<u64>().ok()
    };
    let before = done();
    scene.proxy.heal();
    eventually("what was frozen is done", || async { done() > before }).await;
    assert!(is_unused(&scene.store, "report").await, "an orphan");
    assert!(scene.direct().lock("report").try_acquire().await.unwrap().is_some());
}

/// F62: every request, sent once more, changes nothing: neither at once nor after so many others
/// that the server has forgotten it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_arrive_once_more_change_nothing() {
    let Some(scene) = Scene::new().await else { return };
    let (locks, other) = (scene.locks(), scene.direct());
    let mut guard = locks.lock("report").ttl(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.release().await.unwrap();
    let captured: Vec<Captured> = scene.proxy.captured();
    let ours: Vec<_> = captured.iter().filter(|call| call.contains("sprag:report")).collect();
    assert!(ours.len() >= 3, "an acquire, a renewal and a release: {}", ours.len());
    let replay = || ours.iter().for_each(|request| drop(scene.proxy.replay(request)));
    replay();
    assert!(is_unused(&scene.store, "report").await, "a duplicate took the lock");

    let_time_pass(TIMEOUT).await;
    for _ in 0..20 {
        other.lock("report").acquire().await.unwrap().release().await.unwrap();
    }
    replay();
    assert!(is_unused(&scene.store, "report").await, "a late duplicate took the lock");
    let current = other.lock("report").ttl(LONG).acquire().await.unwrap();
    let before = look(&scene.store, "report").await;
    replay();
    let after = look(&scene.store, "report").await;
    assert_eq!((after.holders.len(), after.waiters.len()), (1, 0));
    assert_eq!((after.holders[0].lease, after.fence), (current.lease(), before.fence));
}
