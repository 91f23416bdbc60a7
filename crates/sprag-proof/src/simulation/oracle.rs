//! [`Oracle`]: who believes to hold what, and whether all of it can be true.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use sprag_core::{Fence, LeaseId, LockGuard, Loss, Mode};

use super::clock::SimClock;
use super::journal::Who;

/// How many grants of a lock are remembered, to find a fence given out twice.
const REMEMBERED: usize = 64;

/// A lock that a worker holds, or believes to hold. It goes with the worker.
pub(crate) struct Held {
    pub(crate) who: Who,
    pub(crate) lock: usize,
    pub(crate) lease: LeaseId,
    clock: Arc<SimClock>,
    claim: Mutex<Claim>,
    /// When an upgrade was given up.
    gave_up_upgrading: Mutex<Option<Moment>>,
    /// The largest fence the guard has shown.
    fence: Mutex<Fence>,
}

enum Claim {
    Guard(LockGuard),
    /// The guard is in use; it was good until then, as this.
    Away {
        until: Moment,
        mode: Mode,
    },
    Nothing,
}

impl Held {
    pub(crate) fn new(who: Who, lock: usize, clock: &Arc<SimClock>, guard: LockGuard) -> Arc<Self> {
        Self::make(who, lock, guard.lease(), clock, Claim::Guard(guard))
    }

    /// What is known of a guard that stays elsewhere: it is good until its deadline at least.
    pub(crate) fn shadow(
        who: Who,
        lock: usize,
        clock: &Arc<SimClock>,
        guard: &LockGuard,
    ) -> Arc<Self> {
        let away = Claim::Away { until: guard.valid_until(), mode: guard.mode() };
        Self::make(who, lock, guard.lease(), clock, away)
    }

    fn make(
        who: Who,
        lock: usize,
        lease: LeaseId,
        clock: &Arc<SimClock>,
        claim: Claim,
    ) -> Arc<Self> {
        let (clock, claim) = (Arc::clone(clock), Mutex::new(claim));
        let (gave_up_upgrading, fence) = (Mutex::default(), Mutex::default());
        Arc::new(Self { who, lock, lease, clock, claim, gave_up_upgrading, fence })
    }

    /// What the guard shows as its fence now may be new, but not smaller.
    pub(crate) fn fence_only_grows(&self) -> Result<(), String> {
        let Some(now) = self.ask(LockGuard::fence) else { return Ok(()) };
        let mut shown = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *shown {
            return Err(format!("the guard's fence went back from {shown} to {now}"));
        }
        *shown = now;
        Ok(())
    }

    /// Takes note of an upgrade that begins or was given up.
    pub(crate) fn upgrades(&self, gave_up: bool) {
        let since = gave_up.then(|| self.clock.now());
        *self.gave_up_upgrading.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// How long ago an upgrade was given up; zero if none was.
    pub(crate) fn gave_up_upgrading_for(&self) -> Duration {
        let since = *self.gave_up_upgrading.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| self.clock.now().since(since))
    }

    fn claim(&self) -> MutexGuard<'_, Claim> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the guard something; `None` while it is in use or given back.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&LockGuard) -> T) -> Option<T> {
        match &*self.claim() {
            Claim::Guard(guard) => Some(question(guard)),
            Claim::Away { .. } | Claim::Nothing => None,
        }
    }

    /// Waits for the guard to be lost.
    pub(crate) fn lost(&self) -> Pin<Box<dyn Future<Output = Loss> + Send>> {
        match &*self.claim() {
            Claim::Guard(guard) => Box::pin(guard.lost()),
            Claim::Away { .. } | Claim::Nothing => Box::pin(std::future::pending()),
        }
    }

    /// Takes the guard out for use. Meanwhile the worker believes what the guard said last, or
    /// as much of it as `mode`.
    pub(crate) fn take(&self, mode: Option<Mode>) -> Option<LockGuard> {
        let mut claim = self.claim();
        let away = match &*claim {
            Claim::Guard(guard) => {
                Claim::Away { until: guard.valid_until(), mode: mode.unwrap_or(guard.mode()) }
            }
            Claim::Away { .. } | Claim::Nothing => return None,
        };
        match std::mem::replace(&mut *claim, away) {
            Claim::Guard(guard) => Some(guard),
            Claim::Away { .. } | Claim::Nothing => None,
        }
    }

    pub(crate) fn put(&self, guard: LockGuard) {
        *self.claim() = Claim::Guard(guard);
    }

    /// Takes the guard out for good.
    pub(crate) fn give_back(&self) -> Option<LockGuard> {
        match std::mem::replace(&mut *self.claim(), Claim::Nothing) {
            Claim::Guard(guard) => Some(guard),
            Claim::Away { .. } | Claim::Nothing => None,
        }
    }

    /// How it is held, if the worker may believe at this moment that it is.
    fn believed(&self) -> Option<Mode> {
        match &*self.claim() {
            Claim::Guard(guard) => guard.is_valid().then(|| guard.mode()),
            Claim::Away { until, mode } => (self.clock.now() < *until).then_some(*mode),
            Claim::Nothing => None,
        }
    }
}

/// What is protected by a lock: a counter that everybody reads and writes back plus one.
#[derive(Debug, Default)]
struct Resource {
    fence: Fence,
    value: u64,
    acknowledged: u64,
}

pub(crate) struct Oracle {
    held: Vec<Vec<Weak<Held>>>,
    granted: Vec<BTreeMap<Fence, LeaseId>>,
    resources: Vec<Resource>,
}

impl Oracle {
    pub(crate) fn new(locks: usize) -> Self {
        let empty = |_| Vec::new();
        Self {
            held: (0..locks).map(empty).collect(),
            granted: (0..locks).map(|_| BTreeMap::new()).collect(),
            resources: (0..locks).map(|_| Resource::default()).collect(),
        }
    }

    /// A worker was told that it holds a lock.
    pub(crate) fn entered(&mut self, held: &Arc<Held>, rough: bool) -> Result<(), String> {
        self.held[held.lock].push(Arc::downgrade(held));
        self.fence_is_new(held, rough)
    }

    /// Fences of exclusive grants grow from one holder to the next; those of permits differ.
    pub(crate) fn fence_is_new(&mut self, held: &Held, rough: bool) -> Result<(), String> {
        let Some((fence, mode)) = held.ask(|guard| (guard.fence(), guard.mode())) else {
            return Ok(());
        };
        if !mode.takes_new_fence() {
            return Ok(());
        }
        let granted = &mut self.granted[held.lock];
        if let Some(other) = granted.get(&fence)
            && *other != held.lease
        {
            return Err(format!("{} has fence {fence}, which another had before", held.who));
        }
        let newer = granted.last_key_value().filter(|(last, _)| **last > fence);
        if let (Some((last, _)), Mode::Exclusive, false) = (newer, mode, rough) {
            return Err(format!("{} enters with fence {fence} after {last}", held.who));
        }
        granted.insert(fence, held.lease);
        if granted.len() > REMEMBERED {
            granted.pop_first();
        }
        Ok(())
    }

    /// Whether all that is believed about a lock at this moment can be true.
    pub(crate) fn exclusion(&mut self, lock: usize) -> Result<(), String> {
        self.held[lock].retain(|held| held.strong_count() > 0);
        let held: Vec<_> = self.held[lock].iter().filter_map(Weak::upgrade).collect();
        let believed = held.iter().filter_map(|held| Some((held, held.believed()?)));
        let believed: Vec<_> = believed.collect();
        let mut permits = 0;
        for (index, (held, mode)) in believed.iter().enumerate() {
            if let Mode::Permits { count, of } = mode {
                permits += count;
                if permits > *of {
                    return Err(format!("{permits} of {of} permits are held"));
                }
            }
            for (other, beside) in &believed[..index] {
                if !may_coexist(*mode, *beside) {
                    let (one, two) = (held.who, other.who);
                    return Err(format!("{one} holds it as {mode} while {two} does as {beside}"));
                }
            }
        }
        Ok(())
    }

    // ---- the protected resource -------------------------------------------------------------

    /// Reads the counter; from then on smaller fences are refused.
    pub(crate) fn read(&mut self, lock: usize, fence: Fence) -> Option<u64> {
        let resource = &mut self.resources[lock];
        resource.fence = resource.fence.max(fence);
        (fence == resource.fence).then_some(resource.value)
    }

    /// Writes the counter; `Ok(false)` if the fence is too small.
    pub(crate) fn write(&mut self, lock: usize, fence: Fence, value: u64) -> Result<bool, String> {
        let resource = &mut self.resources[lock];
        if fence < resource.fence {
            return Ok(false);
        }
        resource.fence = fence;
        resource.value = value;
        resource.acknowledged += 1;
        if resource.value != resource.acknowledged {
            let (value, acknowledged) = (resource.value, resource.acknowledged);
            return Err(format!("{acknowledged} increments acknowledged, the counter is {value}"));
        }
        Ok(true)
    }
}

/// The table in [`Mode`]'s documentation, written down a second time.
const fn may_coexist(one: Mode, other: Mode) -> bool {
    matches!(
        (one, other),
        (Mode::Shared, Mode::Shared | Mode::Upgradable)
            | (Mode::Upgradable, Mode::Shared)
            | (Mode::Permits { .. }, Mode::Permits { .. })
    )
}
