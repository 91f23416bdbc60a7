//! A lock that goes from one task of a process to the next before that is written, and what may
//! happen in between.

use std::sync::Arc;
use std::time::Duration;

use sprag::{Locks, Loss, Released, Strategy};
use sprag_core::Client;
use sprag_core::store::{Attempt, Released as Freed};
use sprag_testkit::passing::{self, First, NAME, Process};
use sprag_testkit::support::{LONG, let_time_pass, until_unused, within};

use super::{SHORT, Scene};

fn scene<'a>(scene: &'a Scene, locks: &'a Locks) -> passing::Scene<'a> {
    passing::Scene { store: &scene.store, proxy: &scene.proxy, client: locks.client() }
}

async fn process(scene: &Scene, ttls: [Duration; 3]) -> Process {
    Process::new(sprag::open(&scene.url()).unwrap(), ttls).await
}

#[tokio::test]
async fn a_release_that_is_cut_off_after_the_heir_was_let_in_is_done() {
    let Some(place) = Scene::new().await else { return };
    scene(&place, &place.locks()).a_release_that_is_cut_off_is_done("release").await;
}

#[tokio::test]
async fn an_heir_whose_predecessor_was_cut_off_is_renewed() {
    let Some(place) = Scene::new().await else { return };
    scene(&place, &place.locks()).an_heir_whose_predecessor_was_cut_off_is_renewed().await;
}

#[tokio::test]
async fn a_release_that_is_cancelled_after_the_heir_was_let_in_is_done() {
    let Some(place) = Scene::new().await else { return };
    scene(&place, &place.locks()).a_release_that_is_cancelled_is_done().await;
}

/// Somebody takes the lock by force while its holder lets in the heir: the heir is told as soon as
/// the release is answered, long before its next renewal, and has the smaller fence.
#[tokio::test]
async fn an_heir_that_was_let_in_after_force_is_told_at_once() {
    let Some(place) = Scene::new().await else { return };
    let locks = place.locks();
    let scene = scene(&place, &locks);
    let (holder, heir, last) = scene.promised().await;
    let (releasing, heir) = scene.pass_on(holder, heir).await;
    let thief = Client::builder(Arc::clone(scene.store)).allow_force(true).build().unwrap();
    let thief = thief.lock(NAME).strategy(Strategy::ForceAcquire).ttl(LONG).acquire().await;
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
    scene.ends_with(last).await;
}

/// Somebody deletes everything while the holder lets in the heir: it is told as soon as the
/// release is answered.
#[tokio::test]
async fn an_heir_of_a_server_that_forgot_the_lock_is_told_at_once() {
    let Some(place) = Scene::new().await else { return };
    let locks = place.locks();
    let scene = scene(&place, &locks);
    let (holder, heir, last) = scene.promised().await;
    let (releasing, heir) = scene.pass_on(holder, heir).await;
    place.server.ask(&["FLUSHALL"]);
    scene.proxy.heal();
    within("told", heir.lost()).await;
    within("released", releasing).await.unwrap().unwrap();
    heir.release().await.unwrap();
    scene.ends_with(last).await;
}

/// Another program, which sees nothing but the plain key, is kept out for as long as the heir may
/// believe in its lease: it counts from its last question, and longer than the holder of before.
#[tokio::test]
async fn another_program_is_kept_out_while_an_heir_is_inside() {
    let Some(place) = Scene::new().await else { return };
    for asks_again in [false, true] {
        // The heir lives for longer, or counts from a question that was asked later.
        let ttls = if asks_again { [3 * SHORT; 2] } else { [SHORT, 4 * SHORT] };
        let process = process(&place, [ttls[0], ttls[1], LONG]).await;
        if asks_again {
            let_time_pass(SHORT * 2).await;
            let asked = process.store.try_acquire(&process.requests[1]).await.unwrap();
            assert!(matches!(asked, Attempt::Queued(_)));
        }
        let fence = process.pass_on_only().await;
        // The lease of the one that has left is over; nobody has told the server that it has left.
        let_time_pass(SHORT * 2).await;
        assert_eq!(place.server.ask(&["SET", "sprag:report", "x", "NX", "PX", "1000"]), "");
        process.is_inside(fence).await;
        let lease = process.requests[1].lease.to_string();
        assert_eq!(place.server.ask(&["GET", "sprag:report"]), lease);
        assert_eq!(process.release(1).await, Freed::Freed);
        process.enter(2).await;
        assert_eq!(process.release(2).await, Freed::Freed);
        until_unused(&place.store, NAME).await;
    }
}

#[tokio::test]
async fn an_heir_may_be_faster_than_who_let_it_in() {
    let Some(place) = Scene::new().await else { return };
    for first in [First::Release, First::Detach, First::Withdraw] {
        let process = process(&place, [LONG; 3]).await;
        process.an_heir_may_be_faster(first, &place.store).await;
    }
}
