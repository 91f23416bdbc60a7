//! [`Board`]: what is shown now, and what is to be done about it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sprag_core::LeaseId;
use sprag_core::clock::Moment;

use super::note::LockNote;
use super::{Tasks, Why};

/// What is shown now, and what is to be done.
#[derive(Default)]
pub(super) struct Board {
    pub(super) shown: HashMap<LeaseId, Shown>,
    pub(super) tasks: Tasks,
    /// What came of the work, for the last words of a lease.
    pub(super) results: HashMap<LeaseId, String>,
    pub(super) over: bool,
}

/// One lock on its issue.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) issue: u64,
    pub(super) note: LockNote,
    pub(super) stage: Stage,
    pub(super) since: Moment,
    /// Our comment, and what it says.
    pub(super) comment: Option<(u64, String)>,
    pub(super) refreshed: Moment,
    /// Whether the assignee was seen once it could only be taken away by somebody else.
    pub(super) seen: bool,
    /// Whether there may be a comment of this lock that we do not know of.
    pub(super) unsure: bool,
    /// Whether one of them would be ours, and GitHub's lists may not show it yet.
    pub(super) unanswered: bool,
    /// Whether we are the assignee.
    pub(super) assigned: bool,
    /// Whether somebody took the assignee away, meaning to release the lock.
    pub(super) revoked: bool,
}

/// How far we are.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    New,
    Shown,
    Broken(Why),
}

impl Shown {
    pub(super) fn new(issue: u64, note: LockNote, now: Moment) -> Self {
        Self {
            issue,
            // Whoever held it before has left one.
            unsure: note.fence.is_none_or(|fence| fence.get() > 1),
            note,
            stage: Stage::New,
            since: now,
            comment: None,
            refreshed: now,
            seen: false,
            unanswered: false,
            assigned: false,
            revoked: false,
        }
    }
}

/// Which comment belongs to which issue, as the chain of its lock tells. Only a hint: it may be
/// gone.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<HashMap<u64, u64>>);

impl Hints {
    pub(crate) fn get(&self, issue: u64) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&issue).copied()
    }

    pub(crate) fn put(&self, issue: u64, comment: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(issue, comment);
    }
}
