//! [`Worker`]: takes one item after the other, and always lets go of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sprag_core::LockGuard;

use crate::error::{Error, ErrorKind, Result};
use crate::name::ItemName;
use crate::source::{Claim, Claimed, How, Ready, Skipped, Source, Wanted};
use crate::task::{Finished, Outcome, Task};

/// Does the work on an item.
///
/// Every `Fn(&Task, &LockGuard) -> Outcome` does. It stops when the guard says that the claim is
/// lost: somebody else may have the item then.
pub trait Handler {
    /// Works on an item.
    fn work(&self, task: &Task, guard: &LockGuard) -> Outcome;
}

impl<F: Fn(&Task, &LockGuard) -> Outcome> Handler for F {
    fn work(&self, task: &Task, guard: &LockGuard) -> Outcome {
        self(task, guard)
    }
}

/// Takes items from a source and gives them to a handler. Whatever the handler does, panic
/// included, the item is not held any longer than it works on it.
#[derive(Debug)]
pub struct Worker<S, H> {
    source: S,
    handler: H,
    wanted: Wanted,
    how: How,
    /// What went wrong here before: others may have more luck.
    avoided: Vec<ItemName>,
}

/// What a worker did in one turn.
#[derive(Debug)]
pub enum Turn {
    /// It worked on an item.
    Worked {
        /// Which was done how, or why it could not be finished.
        result: Result<Finished>,
        /// What it passed over before.
        skipped: Vec<Skipped>,
    },
    /// There is nothing to do.
    Idle {
        /// What there is and cannot be claimed.
        skipped: Vec<Skipped>,
    },
}

impl<S: Source, H: Handler> Worker<S, H> {
    /// A worker that takes any item.
    pub fn new(source: S, handler: H) -> Self {
        let (wanted, how) = (Wanted::default(), How::default());
        Self { source, handler, wanted, how, avoided: Vec::new() }
    }

    /// Takes only these.
    #[must_use]
    pub fn wanting(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// Claims them like this.
    #[must_use]
    pub fn claiming(mut self, how: How) -> Self {
        self.how = how;
        self
    }

    /// Works on the next item.
    ///
    /// # Errors
    ///
    /// If the source cannot be read. What goes wrong with an item is in the [`Turn`].
    pub fn turn(&mut self) -> Result<Turn> {
        let mut wanted = self.wanted.clone();
        wanted.without.extend(self.avoided.iter().cloned());
        let (claim, skipped) = next(&self.source, &wanted, &self.how)?;
        let Some(claim) = claim else { return Ok(Turn::Idle { skipped }) };
        let name = claim.task().item.name.clone();
        let Some(guard) = claim.guard() else { return Err(no_guard(&name)) };
        let work = || self.handler.work(claim.task(), guard);
        let result = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(outcome) => {
                if matches!(outcome, Outcome::Failed { .. } | Outcome::Released) {
                    self.avoided.push(name.clone());
                }
                claim.finish(outcome)
            }
            Err(panic) => {
                // The panic says what went wrong; whether the item was released does not matter
                // to whoever hears it.
                drop(claim.finish(Outcome::Failed { why: "the handler panicked".to_owned() }));
                resume_unwind(panic);
            }
        };
        if result.is_err() {
            self.avoided.push(name);
        }
        Ok(Turn::Worked { result, skipped })
    }

    /// Works until there is nothing to do; gives back what was finished.
    ///
    /// # Errors
    ///
    /// If the source cannot be read. What goes wrong with an item is told to `tell`.
    pub fn drain(&mut self, mut tell: impl FnMut(&Turn)) -> Result<Vec<Finished>> {
        let mut all = Vec::new();
        loop {
            let turn = self.turn()?;
            tell(&turn);
            match turn {
                Turn::Worked { result, .. } => all.extend(result.ok()),
                Turn::Idle { .. } => return Ok(all),
            }
        }
    }
}

fn no_guard(item: &ItemName) -> Error {
    Error::new(ErrorKind::NotClaimed, format!("{item} was claimed without a lock"))
}

/// What was claimed, if anything could be, and what was passed over.
pub type Chosen = (Option<Box<dyn Claim>>, Vec<Skipped>);

/// Claims the next item that can be claimed, and says what was passed over.
///
/// Whoever was too late looks again: where somebody was faster once, others were elsewhere.
///
/// # Errors
///
/// If the source cannot be read.
pub fn next<S: Source + ?Sized>(source: &S, wanted: &Wanted, how: &How) -> Result<Chosen> {
    let mut passed: Vec<Skipped> = Vec::new();
    loop {
        let Ready { items, mut skipped } = source.ready(wanted)?;
        let is_new = |name: &str| passed.iter().all(|before| before.item != name);
        let chosen = items.iter().find(|item| is_new(item.name.as_str()));
        let claimed = chosen.map(|item| (item, source.claim(item, how)));
        let (item, why) = match claimed {
            Some((item, Ok(Claimed::Passed(why)))) => (item, why),
            Some((item, Err(error))) if error.kind() == ErrorKind::Input => {
                (item, error.to_string())
            }
            Some((_, Err(error))) => return Err(error),
            Some((_, Ok(Claimed::Won(claim)))) => {
                skipped.retain(|one| is_new(&one.item));
                return Ok((Some(claim), [passed, skipped].concat()));
            }
            None => {
                skipped.retain(|one| is_new(&one.item));
                return Ok((None, [passed, skipped].concat()));
            }
        };
        passed.push(Skipped { item: item.name.to_string(), why });
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle { .. } => f.write_str("nothing to do"),
            Self::Worked { result: Ok(done), .. } => {
                write!(f, "{}: {} -> {}", done.item, done.from, done.to)
            }
            Self::Worked { result: Err(error), .. } => Error::fmt(error, f),
        }
    }
}
