//! [`Source`]: where items come from.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sprag_core::LockGuard;

use crate::board::Board;
use crate::error::Result;
use crate::flow::State;
use crate::item::Item;
use crate::name::ItemName;
use crate::stats::Stats;
use crate::task::{Finished, Outcome, Task};

/// A place with items that can be claimed. All calls block.
///
/// # Contract
///
/// 1. Of any number of rivals at most one is told that it [won](Claimed::Won) an item, until its
///    claim is over.
/// 2. [`Claim::finish`] moves the item in the same step in which the claim ends, and only if it is
///    still there. Whoever has lost its claim changes nothing.
/// 3. A claim that is dropped is released, and so is that of a process that dies, some day.
pub trait Source: Send + Sync + fmt::Debug {
    /// The items that can be claimed now, the next one first, and why others cannot.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn ready(&self, wanted: &Wanted) -> Result<Ready>;

    /// Tries once to claim an item.
    ///
    /// # Errors
    ///
    /// If it is not known whether it can be claimed.
    fn claim(&self, item: &Item, how: &How) -> Result<Claimed>;
}

/// What people ask of a source, beside what workers do.
pub trait Items: Source {
    /// Claims an item that has to be free.
    ///
    /// # Errors
    ///
    /// Nothing if there is no such item; held if somebody has it.
    fn claim_named(&self, name: &str, how: &How) -> Result<Box<dyn Claim>>;

    /// A claim that was made here and kept.
    ///
    /// # Errors
    ///
    /// Not claimed if there is none, or a process works under it.
    fn reopen(&self, name: &str) -> Result<Box<dyn Claim>>;

    /// The item that somebody who stands in a directory has claimed, if that is clear.
    fn claimed_in(&self, directory: &Path) -> Option<ItemName>;

    /// All items, and who works on them.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn board(&self) -> Result<Board>;

    /// How the work goes.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn stats(&self) -> Result<Stats>;

    /// A state by its name.
    ///
    /// # Errors
    ///
    /// Input if there is none of that name.
    fn state(&self, name: &str) -> Result<State>;

    /// Whether items stay in this state.
    fn is_last(&self, state: &State) -> bool;

    /// Where the locks of the items are, for people.
    fn shown(&self) -> String;
}

/// An item that is ours.
pub trait Claim: Send + fmt::Debug {
    /// What there is to do.
    fn task(&self) -> &Task;

    /// The lock on the item; `None` if another process took it and left.
    fn guard(&self) -> Option<&LockGuard>;

    /// A descriptor that keeps the claim alive on this machine, for whoever guards a command.
    fn lifeline(&self) -> Option<OwnedFd>;

    /// Ends the claim, and moves the item if it is to be moved.
    ///
    /// # Errors
    ///
    /// Lost if the claim was lost before; conflict or refused if the work does not fit. The work is
    /// kept in each case, and the error says where.
    fn finish(self: Box<Self>, outcome: Outcome) -> Result<Finished>;

    /// Lets the claim stand for so long without this process.
    ///
    /// # Errors
    ///
    /// If it is lost, or the store does not answer.
    fn keep(self: Box<Self>, ttl: Duration) -> Result<Task>;
}

/// Which items are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those in these states; in any state but pending and the last if there are none.
    pub states: Vec<State>,
    /// Not these.
    pub without: Vec<ItemName>,
}

/// What can be claimed, and what cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The next one first.
    pub items: Vec<Item>,
    /// Why others are not among them.
    pub skipped: Vec<Skipped>,
}

/// An item that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub item: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.item, self.why)
    }
}

/// How an item is claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Whether to make a worktree for it.
    pub worktree: bool,
    /// What the claim is for.
    pub purpose: Purpose,
    /// How long it is going to last without this process, if it is to be [kept](Claim::keep).
    pub ttl: Option<Duration>,
}

impl How {
    /// The TTL to begin with. A lease is never shortened later.
    pub(crate) fn first_ttl(&self, run_ttl: Duration) -> Duration {
        self.ttl.map_or(run_ttl, |ttl| ttl.min(run_ttl))
    }
}

/// What a claim is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The step out of the item's state.
    #[default]
    Step,
    /// Making it pending.
    Pend,
}

/// What came of trying.
#[derive(Debug)]
pub enum Claimed {
    /// The item is ours.
    Won(Box<dyn Claim>),
    /// It is not to be had, for this reason.
    Passed(String),
}
