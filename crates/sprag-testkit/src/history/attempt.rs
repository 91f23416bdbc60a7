//! [`Lock`] and [`Attempt`]: the events of a history, sorted by lock and acquire call.

use std::collections::BTreeMap;

use sprag_core::{Fence, LeaseId, LockName, Mode};

use super::{Event, Op, Rules};

/// All that happened to one lock.
#[derive(Debug)]
pub(super) struct Lock<'a> {
    pub(super) name: &'a LockName,
    pub(super) attempts: BTreeMap<LeaseId, Attempt<'a>>,
    /// What the store said, [`Op::Inspected`] and [`Op::Final`], by the time of asking.
    pub(super) looks: Vec<&'a Event>,
    pub(super) writes: Vec<&'a Event>,
    pub(super) counted: Vec<&'a Event>,
    pub(super) evicted: Vec<&'a Event>,
}

/// All that one acquire call and its guard did and learned, by the time of learning.
#[derive(Debug, Default)]
pub(super) struct Attempt<'a> {
    pub(super) events: Vec<&'a Event>,
    /// When its process was killed.
    pub(super) killed: Option<u64>,
}

/// A time in which a holder believes to hold the lock: from `start` to just before `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) mode: Mode,
    /// What made it believe so.
    pub(super) event: &'a Event,
}

/// A grant, or an upgrade that took a new fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken<'a> {
    pub(super) fence: Fence,
    pub(super) mode: Mode,
    /// The store decided between these two moments.
    pub(super) asked: u64,
    pub(super) learned: u64,
    pub(super) event: &'a Event,
}

/// Sorts the events of a history.
pub(super) fn locks<'a>(events: &'a [Event], rules: &Rules) -> Vec<Lock<'a>> {
    let mut locks: BTreeMap<&LockName, Lock<'a>> = BTreeMap::new();
    for event in events {
        let lock = locks.entry(&event.lock).or_insert_with(|| Lock {
            name: &event.lock,
            attempts: BTreeMap::new(),
            looks: Vec::new(),
            writes: Vec::new(),
            counted: Vec::new(),
            evicted: Vec::new(),
        });
        match event.op {
            Op::Inspected | Op::Final => lock.looks.push(event),
            Op::Wrote => lock.writes.push(event),
            Op::Counted => lock.counted.push(event),
            Op::Evicted => lock.evicted.push(event),
            _ => {
                let attempt = lock.attempts.entry(event.attempt).or_default();
                attempt.events.push(event);
                attempt.killed = attempt.killed.or(rules.killed.get(&event.proc).copied());
            }
        }
    }
    let mut locks: Vec<Lock<'a>> = locks.into_values().collect();
    for lock in &mut locks {
        lock.looks.sort_by_key(|event| event.t_send_ns);
        for attempt in lock.attempts.values_mut() {
            attempt.events.sort_by_key(|event| (event.t_recv_ns, event.t_send_ns));
        }
    }
    locks
}

impl<'a> Lock<'a> {
    /// All grants and upgrades.
    pub(super) fn taken(&self) -> Vec<Taken<'a>> {
        self.attempts.values().flat_map(Attempt::taken).collect()
    }
}

impl<'a> Attempt<'a> {
    /// The first event of a kind.
    pub(super) fn first(&self, op: Op) -> Option<&'a Event> {
        self.events.iter().copied().find(|event| event.op == op)
    }

    /// The last event of a kind.
    pub(super) fn last(&self, op: Op) -> Option<&'a Event> {
        self.events.iter().copied().rfind(|event| event.op == op)
    }

    /// When the store first may have heard of it.
    pub(super) fn asked(&self) -> u64 {
        self.events.iter().map(|event| event.t_send_ns).min().unwrap_or(0)
    }

    /// The grant and the upgrades. A repeated answer with the same fence is not a grant.
    pub(super) fn taken(&self) -> Vec<Taken<'a>> {
        let mut taken: Vec<Taken<'a>> = Vec::new();
        for &event in &self.events {
            let asked = match event.op {
                Op::Granted => self.asked(),
                Op::Converted if event.mode.takes_new_fence() => event.t_send_ns,
                _ => continue,
            };
            let Some(fence) = event.fence else { continue };
            if taken.last().is_some_and(|last| last.fence == fence && last.mode == event.mode) {
                continue;
            }
            let learned = event.t_recv_ns;
            taken.push(Taken { fence, mode: event.mode, asked, learned, event });
        }
        taken
    }

    /// Every time that it was given back.
    pub(super) fn releases(&self) -> impl Iterator<Item = &'a Event> {
        self.events.iter().copied().filter(|event| event.op == Op::Released)
    }

    /// The moment at which it stopped believing for another reason than its deadline.
    pub(super) fn stopped(&self) -> u64 {
        // A guard that is dropped while its client ends is released by both, and the answers may come
        // in any order.
        let is_release = |event: &&&Event| matches!(event.op, Op::Releasing | Op::Released);
        let released = self.events.iter().filter(is_release).map(|event| event.t_send_ns).min();
        let lost = self.first(Op::Lost).map(|event| event.t_recv_ns);
        [released, lost, self.killed].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// When it believed to hold the lock.
    pub(super) fn beliefs(&self) -> Vec<Belief<'a>> {
        let mut beliefs: Vec<Belief<'a>> = Vec::new();
        for &event in &self.events {
            let fresh = Belief {
                start: event.t_recv_ns,
                end: event.valid_until_ns.unwrap_or(u64::MAX),
                mode: event.mode,
                event,
            };
            match (event.op, beliefs.last_mut()) {
                (Op::Granted, None) => beliefs.push(fresh),
                // A renewal that comes in time goes on; one that comes late starts anew.
                (Op::Renewed, Some(last)) if event.t_recv_ns <= last.end => last.end = fresh.end,
                (Op::Renewed, Some(last)) => {
                    let mode = last.mode;
                    beliefs.push(Belief { mode, ..fresh });
                }
                (Op::Converted, Some(last)) => {
                    // Whatever it gives up it may not have from the send on, and what it gets
                    // only from the answer on; a reader it is all the time.
                    let gives_up = !fresh.mode.takes_new_fence();
                    let turn = if gives_up { event.t_send_ns } else { event.t_recv_ns };
                    let end = event.valid_until_ns.unwrap_or(last.end);
                    last.end = last.end.min(turn);
                    beliefs.push(Belief { start: turn, end, ..fresh });
                }
                _ => {}
            }
        }
        let stopped = self.stopped();
        for belief in &mut beliefs {
            belief.end = belief.end.min(stopped);
        }
        beliefs.retain(|belief| belief.start < belief.end);
        beliefs
    }
}
