//! Takes two locks at once without ever waiting in a circle.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use sprag::{DistributedLock, Locks};

const ROUNDS: u32 = 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells how many times both locks were held.
pub(crate) async fn run(url: &str) -> anyhow::Result<u32> {
    let locks = Locks::open(url)?;
    let lock: Arc<dyn DistributedLock> = Arc::new(locks.clone());

    // Two tasks want the same two locks, and name them in opposite order.
    let one = tokio::spawn(many_times(Arc::clone(&lock), "account:a", "account:b"));
    let two = tokio::spawn(many_times(lock, "account:b", "account:a"));
    let times = one.await?? + two.await??;
    println!("both locks were held {times} times, without a deadlock");

    // The same, built in, for any number of locks.
    let names = ["account:b", "account:a"];
    let both = locks.acquire_many(names, |lock| lock.ttl(Duration::from_secs(30))).await?;
    both.ensure_valid()?;
    both.release().await?;
    Ok(times + 1)
}

async fn many_times(
    lock: Arc<dyn DistributedLock>,
    first: &str,
    second: &str,
) -> anyhow::Result<u32> {
    for _ in 0..ROUNDS {
        acquire_multiple(&*lock, first, second).await?;
    }
    Ok(ROUNDS)
}

async fn acquire_multiple(
    lock: &dyn DistributedLock,
    resource1: &str,
    resource2: &str,
) -> anyhow::Result<()> {
    // Everybody takes them in the same order. A name that is given twice is an error here, and
    // is taken once by `acquire_many`.
    let (first, second) =
        if resource1 < resource2 { (resource1, resource2) } else { (resource2, resource1) };

    let guard1 = lock.acquire(first, Duration::from_secs(30)).await?;
    let guard2 = lock.acquire(second, Duration::from_secs(30)).await?;

    // Both are held.
    lock.release(guard2).await?;
    lock.release(guard1).await?;
    Ok(())
}
