//! [`MemoryLedger`]: a ledger in this process, for tests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::{Error, ErrorKind, Operation, Result};

use crate::ledger::{Change, Entry, Ledger, New, Swapped};
use crate::oid::Oid;
use crate::ref_name::RefName;

/// A ledger in memory; clones share it. Tests tell it what goes wrong.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    references: BTreeMap<RefName, Oid>,
    entries: HashMap<Oid, (Entry, Option<Oid>)>,
    faults: VecDeque<Fault>,
    late: Vec<Vec<Change>>,
    swaps: usize,
    reads: usize,
    keeps_history: bool,
}

/// What goes wrong with the next swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and nobody is told.
    LoseRequest,
    /// It is done, and nobody is told.
    LoseReply,
    /// It is not done, and the answer is empty.
    SayNothing,
    /// It is done when [`MemoryLedger::deliver`] says so, if it still can be; nobody is told.
    Delay,
}

impl MemoryLedger {
    /// Makes the next swap go wrong; several in the order of the calls.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.push_back(fault);
    }

    /// Lets swaps arrive that were delayed. Returns how many of them were done.
    pub fn deliver(&self) -> usize {
        let late = std::mem::take(&mut self.state().late);
        let done = |changes: &Vec<Change>| {
            self.state().swap(changes).iter().all(|one| matches!(one, Swapped::Done(_)))
        };
        late.iter().filter(|changes| done(changes)).count()
    }

    /// Lets no reference begin anew from now on, as servers do that take only fast-forwards.
    pub fn keep_history(&self) {
        self.state().keeps_history = true;
    }

    /// How many swaps and how many reads were asked for.
    pub fn requests(&self) -> (usize, usize) {
        let state = self.state();
        (state.swaps, state.reads)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn swap(&mut self, changes: &[Change]) -> Vec<Swapped> {
        let fits = |change: &Change| self.references.get(&change.name) == change.old.as_ref();
        let fitting: Vec<_> = changes.iter().map(fits).collect();
        if fitting.iter().any(|fits| !fits) {
            let refused = |fits| if fits { Swapped::Aborted } else { Swapped::Refused };
            return fitting.into_iter().map(refused).collect();
        }
        changes.iter().map(|change| Swapped::Done(self.put(change))).collect()
    }

    fn put(&mut self, change: &Change) -> Option<Oid> {
        let before = match &change.new {
            New::Entry(_) => change.old.clone(),
            New::Root(_) | New::At(_) | New::Nowhere => None,
        };
        let oid = match &change.new {
            New::Entry(entry) | New::Root(entry) => {
                let (high, low) = (OsEntropy.next_u128(), OsEntropy.next_u128());
                let oid = Oid::new(format!("{high:032x}{low:032x}"))?;
                self.entries.insert(oid.clone(), (entry.clone(), before));
                oid
            }
            New::At(oid) => oid.clone(),
            New::Nowhere => {
                self.references.remove(&change.name);
                return None;
            }
        };
        self.references.insert(change.name.clone(), oid.clone());
        Some(oid)
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::Unavailable, Operation::Acquire, "the ledger did not answer")
}

impl Ledger for MemoryLedger {
    fn tips(&self, names: &[RefName]) -> Result<Vec<Option<Oid>>> {
        let mut state = self.state();
        state.reads += 1;
        Ok(names.iter().map(|name| state.references.get(name).cloned()).collect())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        let mut state = self.state();
        state.reads += 1;
        let below = state.references.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
        Ok(below.map(|(name, oid)| (name.clone(), oid.clone())).collect())
    }

    fn entries(&self, tips: &[(RefName, Oid)]) -> Result<Vec<Entry>> {
        let mut state = self.state();
        state.reads += 1;
        let entry =
            |(_, oid): &(RefName, Oid)| state.entries.get(oid).map(|(entry, _)| entry.clone());
        tips.iter().map(entry).collect::<Option<_>>().ok_or_else(unknown)
    }

    fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>> {
        let mut state = self.state();
        state.swaps += 1;
        if state.keeps_history && changes.iter().any(|one| matches!(one.new, New::Root(_))) {
            let message = "only fast-forwards are taken";
            return Err(Error::new(ErrorKind::Refused, Operation::Acquire, message));
        }
        match state.faults.pop_front() {
            None => Ok(state.swap(changes)),
            Some(Fault::SayNothing) => Ok(Vec::new()),
            Some(fault) => {
                match fault {
                    Fault::LoseRequest | Fault::SayNothing => {}
                    Fault::LoseReply => drop(state.swap(changes)),
                    Fault::Delay => state.late.push(changes.to_vec()),
                }
                Err(unknown())
            }
        }
    }

    fn history(&self, name: &RefName, limit: usize) -> Result<Vec<(Oid, Entry)>> {
        let mut state = self.state();
        state.reads += 1;
        let mut next = state.references.get(name).cloned();
        let mut history = Vec::new();
        while let Some(oid) = next.filter(|_| history.len() < limit) {
            let Some((entry, before)) = state.entries.get(&oid) else { break };
            history.push((oid, entry.clone()));
            next = before.clone();
        }
        Ok(history)
    }
}
