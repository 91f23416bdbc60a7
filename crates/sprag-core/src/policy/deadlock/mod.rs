//! [`Deadlock`]: parties that wait for each other and would do so for ever.
//!
//! The graph lives in the store: each lock's view says who holds it and who waits for it. A party
//! that waits for nothing can run, will release what it holds, and thereby lets others run.
//! [`find`] follows this to its end; what still cannot run waits in circles.
//!
//! A view may be out of date, and views of several locks are not of one moment. So one finding
//! proves nothing. A second one that [confirms](Deadlock::confirms) it does: leases are never
//! used twice, so every wait and every hold seen in both existed all the time in between, and
//! all of them together.

mod nested;
#[cfg(test)]
mod properties;
mod search;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::fence::Fence;
use crate::id::{LeaseId, PartyId};
use crate::name::LockName;

pub use nested::stand_in;
pub use search::find;

/// Parties that wait for each other, and the one that should give up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// Every wait of every party in it, by lock and lease.
    pub members: Vec<Edge>,
    /// The wait to give up: the one of lowest priority, among these the youngest, among these
    /// the one with the largest lease id. A pending upgrade is given up only if there is nothing
    /// else, as its holder would lose the most.
    ///
    /// Everybody who sees the same views finds the same victim. Only its owner acts.
    pub victim: LeaseId,
}

/// One wait in a [`Deadlock`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edge {
    /// The lock waited for.
    pub lock: LockName,
    /// The lease that waits; for an upgrade the one that holds.
    pub waiter: LeaseId,
    /// The party that waits.
    pub party: PartyId,
    /// The worker that waits, for people.
    pub worker: String,
    /// Its place in the order of arrival; 0 for an upgrade.
    pub ticket: u64,
    /// Its priority.
    pub priority: i8,
    /// How long it has been waiting; nothing for an upgrade.
    pub waiting: Duration,
    /// When it began to wait, by the store's clock; 0 for an upgrade. It tells who is the youngest:
    /// for how long somebody has been waiting depends on who looks when, and of two that came at
    /// once both could be.
    pub arrived_ms: u64,
    /// Whether it holds the lock and waits to be alone.
    pub upgrading: bool,
    /// Who is in its way, of the parties in the deadlock.
    pub blocked_by: Vec<Blocker>,
}

/// Who is in the way of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Blocker {
    /// The party in the way.
    pub party: PartyId,
    /// The lease with which it holds the lock or waits ahead. Two readers in turn may carry the
    /// same fence; never the same lease.
    pub lease: LeaseId,
    /// The fence with which it holds the lock; `None` if it only waits ahead in the queue.
    pub fence: Option<Fence>,
}

impl Deadlock {
    fn new(mut members: Vec<Edge>) -> Option<Self> {
        members.sort_by(|a, b| (&a.lock, a.waiter).cmp(&(&b.lock, b.waiter)));
        let rank = |edge: &&Edge| {
            let youngest = Reverse((edge.arrived_ms, edge.waiter));
            (edge.upgrading, edge.priority, youngest)
        };
        let victim = members.iter().min_by_key(rank)?.waiter;
        Some(Self { members, victim })
    }

    /// Whether every wait of the `earlier` finding is seen here again: the same lease waits for
    /// the same lock, and the same leases with the same fences are in its way.
    ///
    /// Then the earlier finding was true. Act on this, the later one's victim.
    pub fn confirms(&self, earlier: &Self) -> bool {
        let edges = |deadlock: &Self| -> BTreeSet<(LockName, LeaseId, Blocker)> {
            let members = deadlock.members.iter();
            members
                .flat_map(|edge| {
                    let key = |blocker| (edge.lock.clone(), edge.waiter, blocker);
                    edge.blocked_by.iter().copied().map(key)
                })
                .collect()
        };
        edges(self).is_superset(&edges(earlier))
    }

    /// The parties in it.
    pub fn parties(&self) -> BTreeSet<PartyId> {
        self.members.iter().map(|edge| edge.party).collect()
    }

    /// A shortest circle through the victim, or failing that through any member: each wait
    /// with the blocker that leads to the next.
    pub fn circle(&self) -> Vec<(&Edge, Blocker)> {
        let victim = self.members.iter().find(|edge| edge.waiter == self.victim);
        let starts = victim.into_iter().chain(&self.members);
        let mut circles = starts.filter_map(|edge| self.circle_from(edge.party));
        circles.next().unwrap_or_default()
    }

    fn circle_from(&self, start: PartyId) -> Option<Vec<(&Edge, Blocker)>> {
        let mut reached: BTreeMap<PartyId, (&Edge, Blocker)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(party) = queue.pop_front() {
            for edge in self.members.iter().filter(|edge| edge.party == party) {
                for blocker in &edge.blocked_by {
                    if let Entry::Vacant(place) = reached.entry(blocker.party) {
                        place.insert((edge, *blocker));
                        queue.push_back(blocker.party);
                    }
                }
            }
            if reached.contains_key(&start) {
                break;
            }
        }
        let mut circle = Vec::new();
        let mut party = start;
        loop {
            let step = *reached.get(&party)?;
            circle.push(step);
            party = step.0.party;
            if party == start {
                circle.reverse();
                return Some(circle);
            }
        }
    }

    fn worker(&self, party: PartyId) -> &str {
        let edge = self.members.iter().find(|edge| edge.party == party);
        edge.map_or("somebody", |edge| edge.worker.as_str())
    }
}

impl std::error::Error for Deadlock {}

impl fmt::Display for Deadlock {
    /// Tells one circle: `a waits for "x" held by b, who waits for "y" held by a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let circle = self.circle();
        for (index, (edge, blocker)) in circle.iter().enumerate() {
            match index {
                0 => f.write_str(&edge.worker)?,
                _ => f.write_str(", who")?,
            }
            let verb = if edge.upgrading { "waits to upgrade" } else { "waits for" };
            let how = if blocker.fence.is_some() { "held by" } else { "behind" };
            let whom =
                if blocker.party == edge.party { "itself" } else { self.worker(blocker.party) };
            write!(f, " {verb} {:?} {how} {whom}", edge.lock)?;
        }
        let told: BTreeSet<_> = circle.iter().map(|(edge, _)| edge.party).collect();
        match self.parties().len().saturating_sub(told.len()) {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}
