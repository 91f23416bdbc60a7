//! What a fence is for: a holder that wakes up too late does no harm.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use sprag::{Fence, Locks};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    run(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    Ok(())
}

/// Tells what is in the file at the end, and what the late writer was told.
pub(crate) async fn run(url: &str) -> anyhow::Result<(String, String)> {
    let mut file = Guarded::default();

    // A holder that is paused: its lease ends and it does not know.
    let old = Locks::open(url)?;
    let request = old.lock("report").ttl(Duration::from_millis(200)).no_renewal();
    let paused = request.acquire().await?;
    paused.lost().await;

    // Somebody else takes over and writes.
    let new = Locks::open(url)?;
    let guard = new.lock("report").wait(Duration::from_secs(10)).acquire().await?;
    file.write(guard.fence(), "new")?;

    // The old holder goes on. If it asks, it is told; if it does not ask, the file refuses.
    println!("its guard says: {}", paused.ensure_valid().expect_err("the lease is over"));
    let refused = file.write(paused.fence(), "old").expect_err("the fence is too small");
    println!("the file says: {refused}");
    guard.release().await?;
    Ok((file.content, refused.to_string()))
}

/// A resource that remembers the largest fence it has seen. In SQL this is one statement:
/// `UPDATE report SET content = $1, fence = $2 WHERE fence <= $2`.
#[derive(Default)]
struct Guarded {
    content: String,
    fence: Fence,
}

impl Guarded {
    fn write(&mut self, fence: Fence, content: &str) -> anyhow::Result<()> {
        anyhow::ensure!(fence >= self.fence, "a later holder has written already");
        (self.fence, self.content) = (fence, content.into());
        Ok(())
    }
}
