//! What the cases share: waiting for a state, letting time pass, looking at locks.
//!
//! A case never sleeps in the hope that something has happened by then. It waits for the state
//! itself, with [`eventually`] or [`within`], and [`PATIENCE`] is long because a machine may be
//! busy. Only where the passing of time is what is tested, such as the end of a lease, it calls
//! [`let_time_pass`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::store::{Request, Takeover};
use sprag_core::{
    Capability, Client, Error, Holder, LeaseId, LockName, LockRequest, LockView, Mode, PartyId,
    Store, entropy::OsEntropy,
};

/// How long to wait for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How long a state is waited for that comes by itself. Only a case that fails waits for so long: on
/// a busy machine an election may need several rounds. Less than [`LONG`], so that nothing comes
/// because a lease has ended.
const ARRIVAL: Duration = Duration::from_secs(45);
/// A lease that does not end within a case.
pub const LONG: Duration = Duration::from_secs(60);

/// Whether thousands of repetitions are asked for: `cargo xtask torture`, `SPRAG_TORTURE=full`.
pub fn torture() -> bool {
    std::env::var("SPRAG_TORTURE").is_ok_and(|value| value == "full")
}

/// How often a case repeats something: `few` times, or `many` under [`torture`].
pub fn times(few: u32, many: u32) -> u32 {
    if torture() { many } else { few }
}

/// How much of something that is random the run looks at: `everyday`, which is enough to find the
/// planted bugs, or `full` with `cargo xtask test --full` (`SPRAG_SIZE=full`) and under [`torture`].
pub fn sized(everyday: usize, full: usize) -> usize {
    let asked = std::env::var("SPRAG_SIZE").is_ok_and(|value| value == "full");
    if asked || torture() { full } else { everyday }
}

/// A folder for files that need not last: in memory, where there is room enough. Databases and
/// repositories make and remove thousands of small files.
pub fn scratch_folder() -> PathBuf {
    const ENOUGH: u64 = 1 << 30;
    let memory = PathBuf::from("/dev/shm");
    let free = rustix::fs::statvfs(&memory).map_or(0, |found| found.f_bavail * found.f_frsize);
    if free >= ENOUGH { memory } else { std::env::temp_dir() }
}

/// The time.
pub fn now() -> Moment {
    BootClock.now()
}

/// Waits until `condition` is true.
///
/// # Panics
///
/// If it is not within 45 seconds.
pub async fn eventually<F>(what: &str, condition: impl FnMut() -> F + Send)
where
    F: Future<Output = bool> + Send,
{
    eventually_within(ARRIVAL, what, condition).await;
}

/// Waits until `condition` is true.
///
/// # Panics
///
/// If it is not within `limit`.
pub async fn eventually_within<F>(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> F + Send,
) where
    F: Future<Output = bool> + Send,
{
    let started = now();
    while !condition().await {
        assert!(now().since(started) < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Waits for `future`.
///
/// # Panics
///
/// If it is not done within 45 seconds.
pub async fn within<T>(what: &str, future: impl Future<Output = T> + Send) -> T {
    match tokio::time::timeout(ARRIVAL, future).await {
        Ok(done) => done,
        Err(_) => panic!("not within {ARRIVAL:?}: {what}"),
    }
}

/// Lets so much time pass. Not for waiting until something has happened.
pub async fn let_time_pass(duration: Duration) {
    let end = now().plus(duration);
    while now() < end {
        tokio::time::sleep(end.since(now())).await;
    }
}

/// Keeps the running thread busy for so long, as code that never awaits does.
pub fn block_this_thread(duration: Duration) {
    let end = now().plus(duration);
    while now() < end {
        std::hint::spin_loop();
    }
}

/// Runs `future` and measures how long it takes.
pub async fn timed<T>(future: impl Future<Output = T> + Send) -> (T, Duration) {
    let started = now();
    let done = future.await;
    (done, now().since(started))
}

/// A lock name that is known to be good.
///
/// # Panics
///
/// If it is not.
pub fn name(text: &str) -> LockName {
    LockName::new(text).expect("the case uses a good name")
}

/// A lease id that nobody else has.
pub fn new_lease() -> LeaseId {
    LeaseId::random(&OsEntropy)
}

/// A request straight to the store: exclusive, [`LONG`], without waiting.
pub fn request(lock: &str) -> Request {
    Request {
        name: name(lock),
        lease: new_lease(),
        party: PartyId::random(&OsEntropy),
        mode: Mode::Exclusive,
        ttl: LONG,
        queue: false,
        priority: 0,
        holder: Holder::new("case", "here"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    }
}

/// Looks at a lock.
///
/// # Panics
///
/// If the store does not answer.
pub async fn look(store: &Arc<dyn Store>, lock: &str) -> LockView {
    store.inspect(&name(lock)).await.expect("the store can be looked at")
}

/// Whether nobody holds the lock and nobody waits for it.
pub async fn is_unused(store: &Arc<dyn Store>, lock: &str) -> bool {
    let view = look(store, lock).await;
    view.holders.is_empty() && view.waiters.is_empty()
}

/// Waits until nobody holds the lock and nobody waits for it.
pub async fn until_unused(store: &Arc<dyn Store>, lock: &str) {
    let what = format!("no holder and no waiter of {lock:?}");
    eventually(&what, || is_unused(store, lock)).await;
}

/// Waits until exactly so many wait for the lock. Where the store keeps no queue nobody is seen
/// waiting, and so it does not wait either.
pub async fn until_waiters(store: &Arc<dyn Store>, lock: &str, count: usize) {
    if !store.capability().queue {
        return;
    }
    let what = format!("{count} waiters of {lock:?}");
    eventually(&what, || async { look(store, lock).await.waiters.len() == count }).await;
}

/// Acquires in a task of its own, so that it counts as a party of its own.
pub fn spawn_acquire(
    request: LockRequest,
) -> tokio::task::JoinHandle<Result<sprag_core::LockGuard, Error>> {
    tokio::spawn(request.acquire())
}

/// Whether the store has an ability; if not, checks that `refused` is refused as unsupported.
///
/// # Panics
///
/// If the store lacks the ability and does something else instead.
pub async fn able(
    client: &Client,
    ability: impl FnOnce(&Capability) -> bool + Send,
    refused: impl FnOnce(&Client) -> LockRequest + Send,
) -> bool {
    if ability(client.capability()) {
        return true;
    }
    match refused(client).acquire().await {
        Err(error) => assert!(error.is_unsupported(), "{error:?} is not unsupported"),
        Ok(guard) => panic!("a store that is not able granted {guard:?}"),
    }
    false
}
