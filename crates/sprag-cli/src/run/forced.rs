//! [`Forced`]: whoever takes a lock by force enters when the command of the old holder is dead.
//!
//! That one is told at once where the store can, else when it renews its lease next. It stops its
//! command and says so in the trail. If it says nothing, its guardian has ended the command when the
//! lease would have ended.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use sprag::audit::{AuditEntry, AuditKind, AuditQuery, STOPPED};
use sprag::clock::{BootClock, Clock};
use sprag::{Client, Fence, HolderView, LeaseId, LockGuard, LockName, LockState, Loss, Strategy};

use super::alarm::Alarm;
use super::holding::Holding;
use super::plan::Plan;
use super::progress::say;
use super::signals::{Received, Signals};
use super::wait::sleep;
use crate::failure::Failure;
use crate::output::plain::one_line;
use crate::output::{Output, time};

/// How often the trail is read; more rarely where each look is a request to a forge.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_FAR: Duration = Duration::from_secs(2);

/// Those from whom locks are taken, as they were seen just before.
#[derive(Debug, Default)]
pub(crate) struct Forced {
    /// Their leases, with whose they are.
    left: BTreeMap<LeaseId, String>,
    /// Leases under which nothing runs that could be waited for, and in the end our own.
    others: Vec<LeaseId>,
    /// How long the command of any of them may run on.
    longest: Duration,
    /// The lease of one that came in between may be as long as ours.
    own_ttl: Duration,
    /// The locks, and what of their trails was written before.
    trails: Vec<(LockName, u64)>,
}

/// How long the command of a holder may run after the lock was taken away: it is told at a renewal,
/// and its guardian ends it before the lease would have ended. Nobody knows what runs under a
/// detached lease.
pub(crate) fn may_run(holder: &HolderView) -> Option<Duration> {
    let over = holder.detached || holder.remaining == Some(Duration::ZERO);
    (!over && !holder.ttl.is_zero()).then_some(holder.ttl)
}

/// What is known of a guard when it is gone.
pub(crate) fn known(guard: &LockGuard) -> (LockName, LeaseId, Fence) {
    (guard.name().clone(), guard.lease(), guard.fence())
}

/// Whether somebody has taken the lock away on purpose, and may wait for our end.
pub(crate) fn is_taken_away(guard: &LockGuard) -> bool {
    matches!(guard.state(), LockState::Lost(Loss::Stolen { .. } | Loss::Broken { .. }))
}

impl Forced {
    /// Looks at those who will lose their locks. Nobody, unless force is used.
    pub(crate) fn look(plan: &Plan, client: &Client) -> Result<Self, Failure> {
        let mut forced = Self::default();
        if plan.strategy != Strategy::ForceAcquire || plan.enters_now {
            return Ok(forced);
        }
        forced.own_ttl = plan.ttl;
        for name in &plan.names {
            let last = sprag::block_on(forced.last_entry(client, name))?;
            forced.trails.push((name.clone(), last));
            for holder in sprag::block_on(client.inspect(name))?.holders {
                match may_run(&holder) {
                    Some(span) => {
                        forced.longest = forced.longest.max(span);
                        forced.left.insert(holder.lease, holder.holder.worker_id);
                    }
                    None => forced.others.push(holder.lease),
                }
            }
        }
        Ok(forced)
    }

    async fn last_entry(&self, client: &Client, name: &LockName) -> sprag::Result<u64> {
        if !client.capability().audit {
            return Ok(0);
        }
        let query = AuditQuery { name: Some(name.clone()), after: 0, limit: 1 };
        Ok(client.audit(&query).await?.last().map_or(0, |entry| entry.sequence))
    }

    /// Waits until all of them have stopped or had to. A signal that came first is returned.
    pub(crate) fn outlast(
        mut self,
        client: &Client,
        taken: &dyn Holding,
        signals: &Signals,
        output: &Output,
    ) -> io::Result<Option<Received>> {
        let granted = BootClock.now();
        self.others.extend(taken.guards().iter().map(LockGuard::lease));
        self.read(client);
        if self.left.is_empty() {
            return Ok(None);
        }
        self.tell(output);
        let alarm = Alarm::new()?;
        let pause = if client.capability().notify { LOOK } else { LOOK_FAR };
        loop {
            if let Some(signal) = signals.next_that_ends() {
                return Ok(Some(signal));
            }
            let (now, limit) = (BootClock.now(), granted.plus(self.longest));
            if self.left.is_empty() || now >= limit {
                return Ok(None);
            }
            alarm.set(now.plus(pause).min(limit))?;
            sleep(&mut [PollFd::new(&alarm, PollFlags::IN), PollFd::new(signals, PollFlags::IN)])?;
            self.read(client);
        }
    }

    fn tell(&self, output: &Output) {
        if output.quiet || output.json {
            return;
        }
        let who: Vec<_> = self.left.values().map(|who| one_line(who)).collect();
        let span = time::span(self.longest);
        say(&format!(
            "sprag: taken from {} by force; waiting until what ran there is dead, at most {span} \
             (--force=now does not wait)\n",
            who.join(", ")
        ));
    }

    /// Reads what was written since. A store that does not answer says nothing.
    fn read(&mut self, client: &Client) {
        if !client.capability().audit {
            return;
        }
        for (name, after) in &mut self.trails {
            let query = AuditQuery { name: Some(name.clone()), after: *after, limit: 0 };
            for entry in sprag::block_on(client.audit(&query)).unwrap_or_default() {
                *after = entry.sequence.max(*after);
                if is_end(&entry) {
                    self.left.remove(&entry.lease);
                } else if entry.kind == AuditKind::TakenOver
                    && !self.others.contains(&entry.lease)
                    && !self.left.contains_key(&entry.lease)
                {
                    self.left.insert(entry.lease, entry.holder.worker_id);
                    self.longest = self.longest.max(self.own_ttl);
                }
            }
        }
    }
}

/// Whether nothing runs under the lease any more: it says so, or was given back.
fn is_end(entry: &AuditEntry) -> bool {
    match entry.kind {
        AuditKind::Released => true,
        AuditKind::Lost => entry.detail.as_deref() == Some(STOPPED),
        _ => false,
    }
}
