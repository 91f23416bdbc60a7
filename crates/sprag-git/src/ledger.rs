//! [`GitLedger`]: a git remote as a ledger.

use std::collections::HashMap;

use sprag_core::diagnosis::Finding;
use sprag_core::{Error, ErrorKind, Operation, Result};
use sprag_ledger::{Change, Entry, Ledger, Oid, RefName, Swapped};

use crate::config::GitConfig;
use crate::diagnose;
use crate::draft::Draft;
use crate::error::{GitError, STORE, Trouble};
use crate::native::Wire;
use crate::object::Commit;
use crate::push::Pushed;

/// A git remote as a [`Ledger`]. An entry is a commit on the empty tree, which follows the one
/// before; its message is a line for people and the data.
#[derive(Debug)]
pub struct GitLedger {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) config: GitConfig,
}

impl GitLedger {
    /// Finds out where the remote is. Does not talk to it yet.
    ///
    /// # Errors
    ///
    /// If there is no git, it is too old, or it knows no such remote.
    pub fn open(config: GitConfig) -> Result<Self, GitError> {
        config.git().version()?;
        let wire = config.wire()?;
        Ok(Self { wire, config })
    }

    /// Whether any of these references is elsewhere by now: a server may have done away with where
    /// it was.
    fn have_moved(&self, tips: &[(RefName, Oid)]) -> bool {
        let names: Vec<RefName> = tips.iter().map(|(name, _)| name.clone()).collect();
        let now = self.tips(&names);
        now.is_ok_and(|now| tips.iter().zip(now).any(|((_, tip), now)| now.as_ref() != Some(tip)))
    }

    fn push(&self, changes: &[Change], atomic: bool) -> Result<Vec<Result<Swapped>>, GitError> {
        let pushed = self.wire.push(&Draft::new(changes)?, atomic)?;
        Ok(pushed.into_iter().map(|(pushed, new)| swapped(pushed, new)).collect())
    }
}

fn swapped(pushed: Pushed, new: Option<Oid>) -> Result<Swapped> {
    match pushed {
        Pushed::Done => Ok(Swapped::Done(new)),
        Pushed::Refused | Pushed::UpToDate => Ok(Swapped::Refused),
        Pushed::Aborted => Ok(Swapped::Aborted),
        Pushed::Failed(error) => Err(error.into()),
        // Whatever the reason is, it may have been done.
        Pushed::Unknown(error) => {
            Err(Error::new(ErrorKind::Unavailable, Operation::Open, error.message()).at(STORE))
        }
    }
}

impl Ledger for GitLedger {
    fn tips(&self, names: &[RefName]) -> Result<Vec<Option<Oid>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let prefixes: Vec<&str> = names.iter().map(RefName::as_str).collect();
        let found: HashMap<RefName, Oid> = self.wire.refs(&prefixes)?.into_iter().collect();
        Ok(names.iter().map(|name| found.get(name).cloned()).collect())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        let mut found = self.wire.refs(&[prefix])?;
        found.sort();
        Ok(found)
    }

    fn entries(&self, tips: &[(RefName, Oid)]) -> Result<Vec<Entry>> {
        let mut wanted: Vec<Oid> = tips.iter().map(|(_, oid)| oid.clone()).collect();
        wanted.sort();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let found = match self.wire.commits(&wanted, 1) {
            Err(error) if error.trouble() == Trouble::Damaged && self.have_moved(tips) => {
                let message = "a reference was changed while it was read: ask again";
                return Err(
                    Error::new(ErrorKind::Unavailable, Operation::Inspect, message).at(STORE)
                );
            }
            found => found?,
        };
        let entry = |(name, oid): &(RefName, Oid)| match found.get(oid) {
            Some(commit) => Ok(commit.entry.clone()),
            None => Err(no_commit(name, oid)),
        };
        tips.iter().map(entry).collect()
    }

    fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.push(changes, changes.len() > 1)?.into_iter().collect()
    }

    fn history(&self, name: &RefName, limit: usize) -> Result<Vec<(Oid, Entry)>> {
        let mut next = self.tips(std::slice::from_ref(name))?.pop().flatten();
        let Some(tip) = next.clone().filter(|_| limit > 0) else { return Ok(Vec::new()) };
        let mut depth = limit;
        let mut found = loop {
            match self.wire.commits(std::slice::from_ref(&tip), depth) {
                // Better the newest part of it than nothing.
                Err(error) if error.trouble() == Trouble::Damaged && depth > 1 => depth /= 2,
                found => break found?,
            }
        };
        let mut history = Vec::new();
        while let Some(oid) = next.take().filter(|_| history.len() < limit) {
            let Some(Commit { parent, entry }) = found.remove(&oid) else { break };
            next = parent;
            history.push((oid, entry));
        }
        Ok(history)
    }

    fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(diagnose::examine(self)?)
    }
}

fn no_commit(name: &RefName, oid: &Oid) -> Error {
    let message = format!(
        "{name} points to {oid}, which is no commit: somebody else wrote there; look at it with \
         git ls-remote, and delete it if it is none of yours"
    );
    Error::new(ErrorKind::Corrupt, Operation::Inspect, message).at(STORE)
}
