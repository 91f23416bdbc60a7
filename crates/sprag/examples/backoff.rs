//! Three ways to wait: a schedule, a wait of your own, and a place in the queue.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag::{DistributedLock, LockGuard, Locks, RetryConfig};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells how often the wait of our own tried.
pub(crate) async fn run(url: &str) -> anyhow::Result<u32> {
    let holder = Locks::open(url)?;
    let guard = holder.acquire("resource", Duration::from_secs(30)).await?;

    // 1. `acquire` waits for as long as the schedule lasts, here for 300 ms.
    let retry = RetryConfig {
        max_attempts: 3,
        initial_delay: Duration::from_millis(100),
        max_delay: Duration::from_secs(5),
        backoff_multiplier: 2.0,
    };
    let impatient = Locks::open(url)?.with_retry(retry);
    match impatient.acquire("resource", Duration::from_secs(30)).await {
        Err(error) if error.is_timeout() => println!("1. {error}"),
        other => anyhow::bail!("expected a timeout: {other:?}"),
    }

    // 2. A loop of our own. It has no place in the queue: others may come later and go first.
    let waiter = Locks::open(url)?;
    let waiting = tokio::spawn(async move { acquire_with_backoff(&waiter, "resource").await });
    tokio::time::sleep(Duration::from_millis(250)).await;
    holder.release(guard).await?;
    let (guard, tries) = waiting.await??;
    println!("2. acquired with fence {} at try {tries}", guard.fence());

    // 3. A place in the queue, first come first served, for a time of our own. The waiter sleeps
    //    until it is woken.
    let queued = holder.lock("resource").wait(Duration::from_secs(60));
    let queued = tokio::spawn(queued.acquire());
    drop(guard);
    let guard = queued.await??;
    println!("3. woken with fence {}", guard.fence());
    guard.release().await?;
    Ok(tries)
}

async fn acquire_with_backoff(
    lock: &dyn DistributedLock,
    resource: &str,
) -> anyhow::Result<(LockGuard, u32)> {
    let mut delay = Duration::from_millis(100);
    let mut tries = 1;

    loop {
        if let Some(guard) = lock.try_acquire(resource, Duration::from_secs(30)).await? {
            return Ok((guard, tries));
        }

        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(5));
        tries += 1;
    }
}
