//! Guards that are dropped without a release, in all the places where that happens.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::cell::RefCell;
use std::time::Duration;

use sprag_core::{Client, LockGuard};
use tokio::runtime::{Builder, Runtime};

use crate::harness::Harness;
use crate::support::{
    LONG, block_this_thread, let_time_pass, look, until_unused, within,
};

/// Runs `work` on a thread that belongs to no runtime, and waits for it.
async fn on_a_plain_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || drop(done.send(work())));
    let result = within("the thread is done", result).await.expect("the thread panicked");
    thread.join().unwrap();
    result
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn acquire(client: &Client) -> LockGuard {
    within("granted", client.lock("report").ttl(LONG).acquire()).await.unwrap()
}

/// F05, FAULTS 6: dropped in a task, by the end of a task, and by a task that is aborted.
pub async fn dropped_in_a_task(harness: &dyn Harness) {
    let client = harness.client().await;
    drop(acquire(&client).await);
    until_unused(client.store(), "report").await;
    let guard = acquire(&client).await;
    tokio::spawn(async move { assert!(guard.is_valid()) }).await.unwrap();
    until_unused(client.store(), "report").await;
    let guard = acquire(&client).await;
    let task = tokio::spawn(async move { guard.lost().await });
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    until_unused(client.store(), "report").await;
}

/// F05, FAULTS 6: dropped on a thread without any runtime.
pub async fn dropped_outside_a_runtime(harness: &dyn Harness) {
    let client = harness.client().await;
    let guard = acquire(&client).await;
    on_a_plain_thread(move || drop(guard)).await;
    until_unused(client.store(), "report").await;
}

/// F05: dropped by the destructor of a thread's own variable, the last thing a thread does.
pub async fn dropped_by_the_end_of_a_thread(harness: &dyn Harness) {
    thread_local! {
        static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
    }
    let client = harness.client().await;
    let guard = acquire(&client).await;
    on_a_plain_thread(move || KEPT.set(Some(guard))).await;
    until_unused(client.store(), "report").await;
}

/// F05, FAULTS 6: dropped while a panic unwinds; there is no second panic.
pub async fn dropped_while_panicking(harness: &dyn Harness) {
    let client = harness.client().await;
    let guard = acquire(&client).await;
    let task = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("the case panics on purpose"));
    });
    assert!(task.await.unwrap_err().is_panic());
    until_unused(client.store(), "report").await;
}

/// F05: acquired on one runtime, used and dropped on another.
pub async fn dropped_on_another_runtime(harness: &dyn Harness) {
    let client = harness.client().await;
    let acquiring = client.clone();
    let acquire = move || {
        let runtime = current_thread();
        let guard = runtime.block_on(acquiring.lock("report").ttl(LONG).acquire()).unwrap();
        // The runtime it was acquired on is gone before the guard is.
        drop(runtime);
        guard
    };
    let guard = on_a_plain_thread(acquire).await;
    assert!(guard.is_valid());
    let guard = on_a_plain_thread(move || {
        current_thread().block_on(async move {
            guard.run(async {}).await.unwrap();
            guard
        })
    })
    .await;
    let drop_there = move || current_thread().block_on(async move { drop(guard) });
    on_a_plain_thread(drop_there).await;
    until_unused(client.store(), "report").await;
}

/// F05, FAULTS 6: held by a task, and another one waits, when their runtime shuts down.
pub async fn dropped_by_the_shutdown_of_a_runtime(harness: &dyn Harness) {
    let client = harness.client().await;
    let user = client.clone();
    on_a_plain_thread(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.block_on(user.lock("report").ttl(LONG).acquire()).unwrap();
        runtime.spawn(async move { guard.lost().await });
        runtime.spawn(user.lock("report").ttl(LONG).acquire());
        runtime.shutdown_timeout(Duration::from_secs(5));
    })
    .await;
    until_unused(client.store(), "report").await;
}

/// F05: the last handle of the client goes together with its guard, and without a runtime.
pub async fn dropped_with_its_client(harness: &dyn Harness) {
    let store = harness.store().await;
    let client = Client::new(std::sync::Arc::clone(&store));
    let guard = acquire(&client).await;
    drop(client);
    assert!(guard.is_valid(), "a guard keeps its client");
    on_a_plain_thread(move || drop(guard)).await;
    until_unused(&store, "report").await;
}

/// FAULTS 6: a guard that is forgotten is renewed, for as long as `max_hold` says.
pub async fn forgotten_it_is_kept_until_max_hold(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = harness.ttl();
    let guard = client.lock("report").ttl(ttl).max_hold(ttl * 2).acquire().await.unwrap();
    std::mem::forget(guard);
    assert!(look(client.store(), "report").await.is_locked());
    until_unused(client.store(), "report").await;
}

/// F06: a runtime whose only thread is blocked for three TTLs does not lose the lock: renewals go
/// on beside it.
pub async fn a_blocked_runtime_keeps_the_lock(harness: &dyn Harness) {
    let client = harness.client().await;
    // What is asked here is who renews, not how late a busy machine may be.
    let ttl = 2 * harness.ttl();
    let block = |name: &'static str, runtime: Runtime| {
        let user = client.clone();
        on_a_plain_thread(move || {
            let blocked = runtime.spawn(async move {
                let guard = user.lock(name).ttl(ttl).acquire().await.unwrap();
                block_this_thread(ttl * 3);
                guard.ensure_valid().expect("renewed while the runtime was blocked");
                guard.release().await.unwrap();
            });
            runtime.block_on(blocked).unwrap();
        })
    };
    let multi = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    tokio::join!(block("report", current_thread()), block("invoice", multi));
    until_unused(client.store(), "report").await;
    until_unused(client.store(), "invoice").await;
}

/// F06: a client that is not asked for anything renews all the same.
pub async fn an_idle_task_keeps_the_lock(harness: &dyn Harness) {
    let client = harness.client().await;
    let ttl = 2 * harness.ttl();
    let guard = client.lock("report").ttl(ttl).acquire().await.unwrap();
    let_time_pass(ttl * 2).await;
    guard.ensure_valid().unwrap();
    assert_eq!(look(client.store(), "report").await.holders[0].lease, guard.lease());
}
