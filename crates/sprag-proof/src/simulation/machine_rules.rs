//! Rules that one step of the machine has to keep, checked after every command.

use sprag_core::record::{
    Applied, Command, Context, EventKind, PRIORITY_BOOST_MS, Record, Steal, Wait,
};
use sprag_core::{Fence, LeaseId, Loss, Mode};

/// What has to be known of the record before the step.
pub(crate) struct Before {
    fence: Fence,
    waiters: Vec<Waiter>,
}

struct Waiter {
    lease: LeaseId,
    order: (i64, u64),
    renewed_ms: u64,
}

impl Before {
    pub(crate) fn look(record: &Record) -> Self {
        let waiter = |wait: &Wait| Waiter {
            lease: wait.lease,
            order: wait.order(),
            renewed_ms: wait.renewed_ms,
        };
        Self { fence: record.fence, waiters: record.waiters.iter().map(waiter).collect() }
    }

    /// The last sign of life of a lease that waited, on the store's clock.
    pub(crate) fn waiter_renewed_ms(&self, lease: LeaseId) -> Option<u64> {
        self.waiters.iter().find(|waiter| waiter.lease == lease).map(|waiter| waiter.renewed_ms)
    }

    pub(crate) fn check(
        &self,
        applied: &Applied,
        command: &Command,
        context: &Context<'_>,
    ) -> Result<(), String> {
        let record = &applied.record;
        record.check()?;
        if record.fence < self.fence {
            return Err(format!("the fence went back from {} to {}", self.fence, record.fence));
        }
        permits_fit(record)?;
        nobody_is_forgotten(record)?;
        priority_is_kept(record, command)?;
        let mut last = self.fence;
        for event in &applied.events {
            match &event.kind {
                EventKind::Granted => {
                    if event.session.is_some_and(|session| (context.is_dead)(session)) {
                        return Err("granted to a waiter that is dead".into());
                    }
                    let holds = |hold: &&sprag_core::record::Hold| hold.lease == event.lease;
                    let Some(hold) = record.holders.iter().find(holds) else { continue };
                    if hold.mode.takes_new_fence() && event.fence <= last {
                        return Err(format!("granted with fence {} after {last}", event.fence));
                    }
                    last = last.max(event.fence);
                    self.nobody_is_overtaken(record, event.lease, command, context)?;
                }
                EventKind::Gone(Loss::Broken { fence, .. }) if *fence != event.fence => {
                    return Err(format!("fence {} broken instead of {fence}", event.fence));
                }
                EventKind::Gone(_) => {}
            }
        }
        Ok(())
    }

    /// Whoever was granted the lock was the first in the queue.
    fn nobody_is_overtaken(
        &self,
        record: &Record,
        granted: LeaseId,
        command: &Command,
        context: &Context<'_>,
    ) -> Result<(), String> {
        let waited = self.waiters.iter().find(|waiter| waiter.lease == granted);
        let order = match (waited, command) {
            (Some(waiter), _) => waiter.order,
            (None, Command::Acquire(acquire))
                if acquire.lease == granted && acquire.steal != Steal::Force =>
            {
                let arrived = i64::try_from(context.now_ms).unwrap_or(i64::MAX);
                (arrived - i64::from(acquire.priority) * PRIORITY_BOOST_MS, u64::MAX)
            }
            // An upgrade goes past the queue, and so does force.
            _ => return Ok(()),
        };
        let overtaken = |wait: &&Wait| wait.lease != granted && wait.order() < order;
        match record.waiters.iter().find(overtaken) {
            Some(wait) => Err(format!("{granted:?} was granted before {:?}", wait.lease)),
            None => Ok(()),
        }
    }
}

fn permits_fit(record: &Record) -> Result<(), String> {
    let taken: u32 = record
        .holders
        .iter()
        .map(|hold| if let Mode::Permits { count, .. } = hold.mode { count } else { 0 })
        .sum();
    match record.limit {
        Some(limit) if taken > limit => Err(format!("{taken} of {limit} permits are taken")),
        _ => Ok(()),
    }
}

fn nobody_is_forgotten(record: &Record) -> Result<(), String> {
    if record.holders.is_empty() && !record.waiters.is_empty() {
        return Err("the lock is free and somebody waits for it".into());
    }
    Ok(())
}

fn priority_is_kept(record: &Record, command: &Command) -> Result<(), String> {
    let Command::Acquire(acquire) = command else { return Ok(()) };
    let forgotten = |wait: &&Wait| {
        wait.lease == acquire.lease
            && wait.priority != acquire.priority
            && acquire.steal != Steal::Force
    };
    match record.waiters.iter().find(forgotten) {
        Some(wait) => {
            Err(format!("asked with priority {}, waits with {}", acquire.priority, wait.priority))
        }
        None => Ok(()),
    }
}
