//! [`GitHubLedger`]: refs that are compared and swapped through GitHub's API.
//!
//! Reads are conditional, so that looking at what has not changed costs nothing. One ref is
//! created, or moved *fast-forward only*: since every entry is a commit whose parent is the one
//! that was read, that is a compare-and-swap. Several refs, and deletions, go by GraphQL, which
//! compares by itself; so do commits that begin anew, which are no fast-forwards. For a ref never
//! comes back to where it was, the two ways can be mixed.

mod cache;
mod message;
mod refs;
mod write;

use std::sync::{Arc, OnceLock};

use sprag_core::{Error, ErrorKind, Result};
use sprag_ledger::{Change, Entry, Ledger, New, Oid, RefName, Swapped};

use self::cache::Cache;
use crate::api::{Api, Trouble};
use crate::call::Urgency;
use crate::error::error;
use crate::mirror::Hints;

/// Refs of one repository.
#[derive(Debug)]
pub struct GitHubLedger {
    api: Arc<Api>,
    hints: Arc<Hints>,
    /// Entries never change.
    entries: Cache,
    /// The tree that all our commits have.
    tree: OnceLock<String>,
    /// How GraphQL names the repository, once it was seen.
    repository: OnceLock<String>,
}

impl GitHubLedger {
    pub(crate) fn new(api: Arc<Api>, hints: Arc<Hints>) -> Self {
        Self {
            api,
            hints,
            entries: Cache::default(),
            tree: OnceLock::new(),
            repository: OnceLock::new(),
        }
    }
}

impl Ledger for GitHubLedger {
    fn tips(&self, names: &[RefName]) -> Result<Vec<Option<Oid>>> {
        if self.repository.get().is_none()
            && let Some(tips) = self.first_look(names)?
        {
            return Ok(tips);
        }
        names.iter().map(|name| Ok(self.tip(name)?)).collect()
    }

    fn list(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        self.matching(prefix)
    }

    fn entries(&self, tips: &[(RefName, Oid)]) -> Result<Vec<Entry>> {
        let oids: Vec<_> = tips.iter().map(|(_, oid)| oid).collect();
        let messages = self.messages(&oids)?;
        let told = tips.iter().zip(messages).map(|((name, _), message)| {
            if let (Some(issue), Some(comment)) = (issue(name), message.comment) {
                self.hints.put(issue, comment);
            }
            message.of(name).clone()
        });
        Ok(told.collect())
    }

    fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>> {
        let urgency = urgency(changes);
        match changes {
            [] => Ok(Vec::new()),
            // What begins anew is no fast-forward.
            [one] if !matches!(one.new, New::Nowhere | New::Root(_)) => {
                Ok(vec![self.swap_one(one, urgency)?])
            }
            several => self.swap_all(several, urgency),
        }
    }

    fn history(&self, name: &RefName, limit: usize) -> Result<Vec<(Oid, Entry)>> {
        match self.tip(name)? {
            None => Ok(Vec::new()),
            Some(tip) => {
                let line = self.ancestry(&tip, limit)?.into_iter();
                Ok(line.map(|(oid, message)| (oid, message.of(name).clone())).collect())
            }
        }
    }
}

/// The issue whose lock's record is here.
fn issue(name: &RefName) -> Option<u64> {
    crate::issue_of(&name.to_lock()?)
}

/// A sign of life goes before everything.
fn urgency(changes: &[Change]) -> Urgency {
    let of_session = |change: &Change| change.name.as_str().starts_with(RefName::sessions());
    if changes.iter().all(of_session) { Urgency::Renewal } else { Urgency::Normal }
}

/// What is known after a swap was sent and not answered.
enum ReadBack {
    /// It was done.
    Done,
    /// It can never happen any more.
    Refused,
    /// It may be done, or be done yet.
    Unknown,
}

impl GitHubLedger {
    /// Looks what became of a swap from `old` to `mine`.
    ///
    /// What is read may be seconds old, so a value that is neither proves nothing by itself: only
    /// one that came after `old` without passing `mine` does.
    fn read_back(&self, name: &RefName, old: Option<&Oid>, mine: Option<&Oid>) -> ReadBack {
        let Ok(tip) = self.tip(name) else { return ReadBack::Unknown };
        if tip.as_ref() == mine {
            return ReadBack::Done;
        }
        if tip.as_ref() == old {
            return ReadBack::Unknown;
        }
        let Some(tip) = tip else {
            // Ours could not follow anything that is gone, unless the reading is older than it.
            return ReadBack::Unknown;
        };
        let Some(old) = old else {
            // It was to be created and is there, as somebody else's or as what followed ours.
            return ReadBack::Refused;
        };
        match self.ancestry(&tip, LOOK_BACK) {
            // Was it ours that was followed, then what was done is in the record.
            Ok(line)
                if line.iter().any(|(oid, message)| {
                    oid == old || Some(oid) == mine || message.follows.as_ref() == Some(old)
                }) =>
            {
                ReadBack::Refused
            }
            Ok(_) | Err(_) => ReadBack::Unknown,
        }
    }
}

/// How many entries may have followed while we waited for an answer.
const LOOK_BACK: usize = 100;

/// The error for an outcome that stays unknown.
fn in_doubt(name: &RefName, cause: Option<Error>) -> Error {
    let told = cause.as_ref().map_or_else(String::new, |cause| format!(": {}", cause.message()));
    let message = format!("whether {name} was changed is not known{told}");
    let doubt = error(ErrorKind::Unavailable, message);
    match cause {
        Some(cause) => doubt.caused_by(cause),
        None => doubt,
    }
}

/// Whether nothing was done, so that there is nothing to be read back.
const fn nothing_done(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Limited(_) | Trouble::Refused(_))
}
