//! What the benchmarks of servers share.

pub(crate) mod locker;
pub(crate) mod subject;
pub(crate) mod turns;

use std::time::Duration;

/// What this process has used so far.
pub(crate) fn cpu() -> anyhow::Result<Duration> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::try_from(used)?)
}
