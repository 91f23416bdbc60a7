//! Does optional work only if nobody else is at it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag::{DistributedLock, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells what each of two instances did.
pub(crate) async fn run(url: &str) -> anyhow::Result<[&'static str; 2]> {
    let (one, two) = (Locks::open(url)?, Locks::open(url)?);

    let Some(guard) = one.try_acquire("cache_cleanup", Duration::from_secs(30)).await? else {
        anyhow::bail!("the store is not fresh");
    };
    println!("instance 1: lock acquired");
    let second = clean_up_if_free(&two).await?;
    println!("instance 2: {second}");
    one.release(guard).await?;

    let first = clean_up_if_free(&two).await?;
    println!("instance 2, later: {first}");
    Ok([second, first])
}

async fn clean_up_if_free(lock: &dyn DistributedLock) -> anyhow::Result<&'static str> {
    match lock.try_acquire("cache_cleanup", Duration::from_secs(30)).await {
        Ok(Some(guard)) => {
            // Clean up here.
            lock.release(guard).await?;
            Ok("cleaned up")
        }
        Ok(None) => Ok("lock held by another instance"),
        // The store does not answer or the request makes no sense: not the same as held.
        Err(error) => Err(error.into()),
    }
}
