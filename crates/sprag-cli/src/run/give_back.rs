//! The last thing that a guardian does for a `sprag run` that was killed: nobody has to wait for the
//! end of a lease whose command is dead.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sprag::clock::{BootClock, Clock, Moment};
use sprag::{LeaseId, LockName, Locks};

use super::alarm::Alarm;

/// How long a store is asked that does not answer: whoever reads our output waits for our end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two attempts.
const AGAIN: Duration = Duration::from_millis(250);

/// Gives leases back, in their order, before they end by themselves at `until`.
pub(crate) fn give_back(store: &str, leases: &[(String, String)], until: Moment) -> io::Result<()> {
    let lease = |(name, lease): &(String, String)| -> Option<(LockName, LeaseId)> {
        Some((LockName::new(name).ok()?, lease.parse().ok()?))
    };
    let mut left: Vec<_> = leases.iter().filter_map(lease).collect();
    let limit = until.min(BootClock.now().plus(PATIENCE));
    let alarm = Alarm::new()?;
    loop {
        if let Ok(locks) = Locks::open(store) {
            // Over already is as good: the lease is compared.
            left.retain(|(name, lease)| {
                sprag::block_on(locks.client().release_lease(name, *lease)).is_err()
            });
        }
        let now = BootClock.now();
        if left.is_empty() || now >= limit {
            return Ok(());
        }
        alarm.set(now.plus(AGAIN))?;
        poll(&mut [PollFd::new(&alarm, PollFlags::IN)], None).ok();
    }
}
