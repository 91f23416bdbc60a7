//! [`find`]: who can still run, and what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Blocker, Deadlock, Edge};
use crate::id::PartyId;
use crate::mode::Mode;
use crate::view::{HolderView, LockView, WaiterView};

/// Finds the deadlock that `me` is part of, if there is one.
///
/// `views` are the locks that somebody waits for, pending upgrades included. A party with
/// several waits can run as soon as one of them is granted. Whoever only waits *behind* a
/// deadlock gets `None`: its members will solve it.
///
/// Circles over several stores are not seen, nor are holders that wait for something that is not
/// a lock.
///
/// # Examples
///
/// ```
/// use sprag_core::policy::deadlock::find;
/// use sprag_core::{LockName, LockView, PartyId};
///
/// let free = LockView::free(LockName::new("a")?);
/// assert_eq!(find(&[free], PartyId::from_u128(1)), None);
/// # Ok::<(), sprag_core::Error>(())
/// ```
pub fn find(views: &[LockView], me: PartyId) -> Option<Deadlock> {
    let waiting = views.iter().flat_map(waiting_parties);
    let mut scope: BTreeSet<PartyId> = waiting.collect();
    loop {
        // Who is left in `scope` is stuck even if everybody else could run.
        let stuck = stuck_within(views, scope.clone());
        if !stuck.contains(&me) {
            return None;
        }
        let edges: Vec<Edge> = views.iter().flat_map(|view| edges(view, &stuck)).collect();
        let circle = circle_of(me, &edges);
        if circle == scope {
            return Deadlock::new(edges);
        }
        // The circle may only be stuck because of others, who are stuck in a circle of their
        // own: a permit that one of them will give back is enough for us. So look again as if
        // they could run. This ends, because the circle is smaller than the scope.
        scope = circle;
    }
}

pub(super) fn waiting_parties(view: &LockView) -> impl Iterator<Item = PartyId> {
    let upgrades = holders(view).filter(|hold| hold.upgrading);
    let upgrades = upgrades.map(|hold| hold.party);
    upgrades.chain(view.waiters.iter().map(|wait| wait.party))
}

/// The holders in the way of others: not those whose lease is over.
fn holders(view: &LockView) -> impl Iterator<Item = &HolderView> {
    let over = |hold: &&HolderView| hold.remaining != Some(Duration::ZERO);
    view.holders.iter().filter(over)
}

/// Takes everybody out of `stuck` who can run, as everybody outside of it can, until nobody else
/// can.
fn stuck_within(views: &[LockView], mut stuck: BTreeSet<PartyId>) -> BTreeSet<PartyId> {
    let mut places: BTreeMap<PartyId, BTreeSet<usize>> = BTreeMap::new();
    for (index, view) in views.iter().enumerate() {
        let holding = holders(view).map(|hold| hold.party);
        let waiting = view.waiters.iter().map(|wait| wait.party);
        for party in holding.chain(waiting) {
            places.entry(party).or_default().insert(index);
        }
    }
    let mut unchecked: BTreeSet<usize> = (0..views.len()).collect();
    while let Some(index) = unchecked.pop_first() {
        for party in granted_next(&views[index], &stuck) {
            stuck.remove(&party);
            // It will leave all its locks, and this is news for who is stuck there.
            unchecked.extend(places.get(&party).into_iter().flatten());
        }
    }
    stuck
}

/// The stuck parties that will be granted this lock once everybody who is not stuck has left it.
fn granted_next(view: &LockView, stuck: &BTreeSet<PartyId>) -> Vec<PartyId> {
    let held = held_by(view, stuck);
    let alone = |hold: &&HolderView| hold.upgrading && held.len() == 1;
    if let Some(upgrade) = held.iter().copied().find(alone) {
        return vec![upgrade.party];
    }
    let queue = view.waiters.iter().filter(|w| stuck.contains(&w.party));
    // First come, first served: who cannot be granted keeps back all behind it.
    let granted = queue.take_while(|wait| fits(view, &held, wait.mode));
    granted.map(|wait| wait.party).collect()
}

fn held_by<'a>(view: &'a LockView, parties: &BTreeSet<PartyId>) -> Vec<&'a HolderView> {
    let among = |hold: &&HolderView| parties.contains(&hold.party);
    holders(view).filter(among).collect()
}

/// Whether `mode` can be granted beside these holders.
fn fits(view: &LockView, held: &[&HolderView], mode: Mode) -> bool {
    let taken: u64 = held.iter().map(|hold| permits(hold.mode)).sum();
    let room = match mode {
        Mode::Permits { count, of } => {
            taken + u64::from(count) <= u64::from(view.limit.unwrap_or(of))
        }
        _ => true,
    };
    room && !held.iter().any(|hold| excludes(hold, mode))
}

fn permits(mode: Mode) -> u64 {
    match mode {
        Mode::Permits { count, .. } => count.into(),
        _ => 0,
    }
}

/// Whether this holder by itself keeps out a waiter, whatever the number of permits.
fn excludes(hold: &HolderView, asked: Mode) -> bool {
    let beside = matches!(
        (hold.mode, asked),
        (Mode::Shared, Mode::Shared | Mode::Upgradable)
            | (Mode::Upgradable, Mode::Shared)
            | (Mode::Permits { .. }, Mode::Permits { .. })
    );
    hold.upgrading || !beside
}

/// Every wait of the stuck parties for this lock, and who of them is in its way.
fn edges(view: &LockView, stuck: &BTreeSet<PartyId>) -> Vec<Edge> {
    let held = held_by(view, stuck);
    let upgrades = held.iter().filter(|hold| hold.upgrading).map(|hold| {
        let others = held.iter().filter(|other| other.lease != hold.lease);
        upgrade_edge(view, hold, others.map(|other| holds(other)).collect())
    });
    let mut edges: Vec<Edge> = upgrades.collect();
    let mut ahead: Option<&WaiterView> = None;
    for wait in view.waiters.iter().filter(|w| stuck.contains(&w.party)) {
        let blocked_by = if fits(view, &held, wait.mode) {
            // Only the queue keeps it back. The next one ahead stands for all ahead of it.
            ahead.into_iter().map(waits).collect()
        } else {
            in_the_way(&held, wait.mode)
        };
        edges.push(wait_edge(view, wait, blocked_by));
        ahead = Some(wait);
    }
    edges
}

/// The holders that keep out a waiter: those that do so alone, or else all who have permits.
///
/// A waiter that is kept out by holders does not count as blocked by the waiters ahead as well:
/// if one of those gave up, it would not help.
fn in_the_way(held: &[&HolderView], asked: Mode) -> Vec<Blocker> {
    let all = || held.iter().copied();
    let mut blockers: Vec<Blocker> = all().filter(|h| excludes(h, asked)).map(holds).collect();
    if blockers.is_empty() {
        blockers = all().map(holds).collect();
    }
    blockers
}

const fn holds(hold: &HolderView) -> Blocker {
    Blocker { party: hold.party, lease: hold.lease, fence: Some(hold.fence) }
}

const fn waits(wait: &WaiterView) -> Blocker {
    Blocker { party: wait.party, lease: wait.lease, fence: None }
}

fn upgrade_edge(view: &LockView, hold: &HolderView, blocked_by: Vec<Blocker>) -> Edge {
    Edge {
        lock: view.name.clone(),
        waiter: hold.lease,
        party: hold.party,
        worker: hold.holder.worker_id.clone(),
        ticket: 0,
        priority: 0,
        waiting: Duration::ZERO,
        arrived_ms: 0,
        upgrading: true,
        blocked_by,
    }
}

fn wait_edge(view: &LockView, wait: &WaiterView, blocked_by: Vec<Blocker>) -> Edge {
    Edge {
        lock: view.name.clone(),
        waiter: wait.lease,
        party: wait.party,
        worker: wait.holder.worker_id.clone(),
        ticket: wait.ticket,
        priority: wait.priority,
        waiting: wait.waiting,
        arrived_ms: wait.arrived_ms,
        upgrading: false,
        blocked_by,
    }
}

/// The parties that `me` waits for, directly or not, and that wait for `me`; empty if there is no
/// circle.
fn circle_of(me: PartyId, edges: &[Edge]) -> BTreeSet<PartyId> {
    let mut onward: BTreeMap<PartyId, Vec<PartyId>> = BTreeMap::new();
    let mut backward: BTreeMap<PartyId, Vec<PartyId>> = BTreeMap::new();
    for edge in edges {
        for blocker in &edge.blocked_by {
            onward.entry(edge.party).or_default().push(blocker.party);
            backward.entry(blocker.party).or_default().push(edge.party);
        }
    }
    let (mine, waiting_for_me) = (reached(me, &onward), reached(me, &backward));
    mine.intersection(&waiting_for_me).copied().collect()
}

/// Everybody who is reached over at least one step.
fn reached(start: PartyId, steps: &BTreeMap<PartyId, Vec<PartyId>>) -> BTreeSet<PartyId> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(party) = open.pop() {
        for next in steps.get(&party).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(*next);
            }
        }
    }
    reached
}
