//! A child by fork(2) without exec(2): a copy of the process, with one of its threads.

use std::io;
use std::time::Duration;

use fork::{Fork, fork};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// How long a child may take, in looks.
const LIMIT: u32 = 500;
const LOOK: Duration = Duration::from_millis(10);
/// A child can hang, and then there is another: some other thread may have had a lock when it was made.
const CHILDREN: u32 = 3;

/// Forks, and lets the child do `misdeeds` and end; tells how many it counted.
pub(super) async fn misdeeds_of_a_child(misdeeds: impl FnOnce() -> u8 + Send) -> io::Result<u64> {
    for _ in 0..CHILDREN {
        let child = match fork()? {
            Fork::Child => std::process::exit(misdeeds().into()),
            Fork::Parent(child) => Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?,
        };
        if let Some(status) = end_of(child).await? {
            let counted = status.exit_status().and_then(|counted| u64::try_from(counted).ok());
            return counted.ok_or_else(|| io::Error::other(format!("the child died: {status:?}")));
        }
    }
    Err(io::Error::other("every child hung"))
}

/// Waits for the end of a child; kills it if it hangs.
async fn end_of(child: Pid) -> io::Result<Option<WaitStatus>> {
    for _ in 0..LIMIT {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
            return Ok(Some(status));
        }
        tokio::time::sleep(LOOK).await;
    }
    kill_process(child, Signal::KILL)?;
    waitpid(Some(child), WaitOptions::empty())?;
    Ok(None)
}
