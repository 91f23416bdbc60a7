//! The program in the README, word for word. It uses the store in your state directory.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use sprag::Locks;
use std::time::Duration;

#[tokio::main]
async fn main() -> sprag::Result<()> {
    // A file in your state directory. No server.
    let locks = Locks::open("sqlite:")?;

    // Waits up to a minute. Once held, the lock is renewed until the guard goes.
    let guard = locks.lock("report").wait(Duration::from_secs(60)).acquire().await?;
    println!("held, with fence {}", guard.fence());

    // Stops the work if the lock is lost.
    let report = async { println!("only one process is here at a time") };
    guard.run(report).await?;
    guard.release().await?;
    Ok(())
}

/// For the test that runs it.
#[cfg(test)]
pub(crate) fn run() -> sprag::Result<()> {
    main()
}
