//! [`Taken`]: everything that is held while the command runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sprag::clock::Moment;
use sprag::{
    Client, Error, LockGuard, LockGuards, LockName, LockRequest, LockView, Loss, Mode, Released,
    Result, Wait,
};

use super::holding::Holding;
use super::plan::Plan;
use crate::output::time;
use crate::{done, slot};

/// How long a slot is waited for before the next one is looked at.
const SLOT_PATIENCE: Duration = Duration::from_millis(250);

/// The locks, and what stands beside them.
#[derive(Debug)]
pub(crate) struct Taken {
    guards: LockGuards,
    /// Which of the slots is ours, and the lock that makes it so.
    slot: Option<(u32, LockGuard)>,
    /// The mark that this period's work is being done, and the end of the period.
    mark: Option<(LockGuard, u64)>,
}

/// What came of taking.
#[derive(Debug)]
pub(crate) enum Taking {
    Taken(Box<Taken>),
    /// The work of this period is done.
    Done(Box<LockView>),
}

/// Takes all locks of a plan, or none. `asking` is the number of the lock that is waited for.
///
/// Who waits for others is also patient with a store that has too many of them at once.
pub(crate) async fn take(plan: &Plan, client: &Client, asking: &AtomicUsize) -> Result<Taking> {
    let give_up = client.clock().now().plus(plan.store_patience());
    loop {
        match take_once(plan, client, asking).await {
            Err(error) if error.is_busy() && client.clock().now() < give_up => {}
            answer => return answer,
        }
    }
}

async fn take_once(plan: &Plan, client: &Client, asking: &AtomicUsize) -> Result<Taking> {
    if let Some(view) = done_already(plan, client).await? {
        return Ok(Taking::Done(Box::new(view)));
    }
    let clock = client.clock();
    let give_up = match plan.wait {
        Wait::AtMost(limit) => clock.now().plus(limit),
        Wait::No | Wait::Forever => Moment::NEVER,
    };
    asking.store(usize::MAX, Ordering::Relaxed);
    let guards = client
        .acquire_many(&plan.names, |request| {
            asking.fetch_add(1, Ordering::Relaxed);
            let request = with_options(request, plan).mode(plan.mode).strategy(plan.strategy);
            match plan.wait {
                Wait::No => request.no_wait(),
                Wait::AtMost(_) => request.wait(give_up.since(clock.now())),
                Wait::Forever => request.wait_forever(),
            }
        })
        .await?;
    let mark = match plan.once_per {
        Some(period) => {
            let mark = match take_mark(plan, client, period).await? {
                Ok(mark) => mark,
                Err(view) => {
                    guards.release().await?;
                    return Ok(Taking::Done(view));
                }
            };
            let now = time::now();
            let rest = done::rest_of_period(now, period).as_millis();
            Some((mark, now.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))))
        }
        None => None,
    };
    let slot = match plan.mode {
        Mode::Permits { of, .. } if !plan.names.is_empty() => {
            Some(take_slot(plan, client, of).await?)
        }
        _ => None,
    };
    Ok(Taking::Taken(Box::new(Taken { guards, slot, mark })))
}

fn first(plan: &Plan) -> Result<&LockName> {
    let missing = || Error::bad_input(sprag::Operation::Acquire, "no lock was named");
    plan.named.first().ok_or_else(missing)
}

fn with_options(request: LockRequest, plan: &Plan) -> LockRequest {
    let request = request.ttl(plan.ttl).priority(plan.priority).party(plan.party);
    request.reason(plan.reason.as_str())
}

/// The mark, if somebody has done this period's work.
async fn done_already(plan: &Plan, client: &Client) -> Result<Option<LockView>> {
    let Some(period) = plan.once_per else { return Ok(None) };
    let view = client.inspect(&done::mark(first(plan)?)?).await?;
    Ok(done::is_done(&view, period, time::now()).then_some(view))
}

/// Takes the mark, or sees that this period's work is done.
async fn take_mark(
    plan: &Plan,
    client: &Client,
    period: Duration,
) -> Result<std::result::Result<LockGuard, Box<LockView>>> {
    let name = done::mark(first(plan)?)?;
    let ask = || with_options(client.lock(&name), plan).no_wait().acquire();
    let error = match ask().await {
        Err(error) if error.is_held() => error,
        answer => return answer.map(Ok),
    };
    let view = client.inspect(&name).await?;
    if done::is_done(&view, period, time::now()) {
        return Ok(Err(Box::new(view)));
    }
    // Held and not done: by one that has lost its lock and is being stopped.
    let Some(old) = done::marked(&view).and(view.holders.first()) else { return Err(error) };
    match client.evict(&name, old.fence, "its period is over").await {
        Err(error) if !error.is_not_owner() => Err(error),
        _ => ask().await.map(Ok),
    }
}

/// Finds a free slot. There are as many as permits, and each is a lock of its own: whoever has a
/// permit finds one, at the latest when a holder that lost its permit has been stopped.
async fn take_slot(plan: &Plan, client: &Client, of: u32) -> Result<(u32, LockGuard)> {
    let name = first(plan)?;
    let ask = |index: u32| with_options(client.lock(slot::name(name, index)), plan);
    loop {
        for index in 0..of {
            if let Some(guard) = ask(index).try_acquire().await? {
                return Ok((index, guard));
            }
        }
        for index in 0..of {
            match ask(index).wait(SLOT_PATIENCE).acquire().await {
                Ok(guard) => return Ok((index, guard)),
                Err(error) if error.is_timeout() => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Holding for Taken {
    fn guards(&self) -> &[LockGuard] {
        self.guards.guards()
    }

    fn slot(&self) -> Option<u32> {
        self.slot.as_ref().map(|(index, _)| *index)
    }

    fn all(&self) -> Vec<&LockGuard> {
        let slot = self.slot.iter().map(|(_, guard)| guard);
        let beside = slot.chain(self.mark.iter().map(|(guard, _)| guard));
        self.guards().iter().chain(beside).collect()
    }
}

impl Taken {
    /// Gives everything back; tells what turned out to be lost before. After a success the mark
    /// stays until the end of its period.
    pub(crate) async fn release(
        self,
        success: bool,
        plan: &Plan,
        client: &Client,
    ) -> Result<Option<(LockName, Loss)>> {
        if let Some((mark, until)) = self.mark
            && success
        {
            keep_until(mark, until, plan, client).await?;
        }
        if let Some((_, slot)) = self.slot {
            slot.release().await?;
        }
        let names: Vec<_> = self.guards.guards().iter().map(|one| one.name().clone()).collect();
        let answers = self.guards.release().await?;
        Ok(names.into_iter().zip(answers).find_map(|(name, answer)| match answer {
            Released::AlreadyLost(loss) => Some((name, loss)),
            Released::Freed => None,
        }))
    }
}

/// Lets a mark stand by itself until the end of its period, if that is not over.
///
/// The lock that the command ran under is still held, so nobody looks at the mark meanwhile.
async fn keep_until(
    mut mark: LockGuard,
    until_ms: u64,
    plan: &Plan,
    client: &Client,
) -> Result<()> {
    let left = Duration::from_millis(until_ms.saturating_sub(time::now()));
    let left = left.min(client.capability().max_ttl);
    let marked = if left < mark.ttl() {
        // An extension never makes a lease end earlier, so a mark for less than its TTL is a new lease.
        let name = mark.name().clone();
        mark.release().await?;
        let request = with_options(client.lock(name), plan).ttl(left);
        request.no_wait().acquire().await
    } else {
        mark.extend(left).await.map(|()| mark)
    };
    match marked {
        Ok(mark) => mark.into_ticket().await.map(drop),
        // The next period has begun, or is about to.
        Err(error) if error.is_bad_input() => Ok(()),
        Err(error) => Err(error),
    }
}
