//! [`Issue`] and [`Comment`].

use super::versions::Versions;
use crate::stamp::Stamp;

/// An issue or, since they share their numbers, a pull request.
#[derive(Clone, Debug)]
pub struct Issue {
    pub(crate) id: u64,
    /// Its number in the repository.
    pub number: u64,
    pub(crate) author: String,
    pub(crate) created: Stamp,
    /// What a pull request is about; `None` for an issue.
    pub(crate) pull: Option<Pull>,
    pub(crate) versions: Versions<IssueState>,
}

impl Issue {
    /// What it is now, whatever replicas say.
    pub fn now(&self) -> &IssueState {
        self.versions.now()
    }
}

/// What makes an issue a pull request.
#[derive(Clone, Debug)]
pub(crate) struct Pull {
    /// The issues it will close.
    pub(crate) closes: Vec<u64>,
}

/// Everything of an issue that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueState {
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
    /// `completed` or `not_planned`, if it was closed.
    pub reason: Option<String>,
    /// The accounts it is assigned to.
    pub assignees: Vec<String>,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// Whether only those who may push may comment.
    pub locked: bool,
    /// How many comments it has.
    pub comments: u64,
    /// What became of it.
    pub fate: Fate,
    /// When it was last changed.
    pub updated: Stamp,
    pub(crate) closed: Option<Stamp>,
}

/// What became of an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is where it was.
    Here,
    /// It was deleted.
    Deleted,
    /// It is in another repository now, under this number.
    Moved {
        /// The repository, as `owner/name`.
        repository: String,
        /// The number there.
        number: u64,
    },
}

/// A comment of an issue.
#[derive(Clone, Debug)]
pub struct Comment {
    /// Its number, which no other comment has.
    pub id: u64,
    /// The issue it belongs to.
    pub issue: u64,
    /// Who wrote it.
    pub author: String,
    /// When it was written.
    pub created: Stamp,
    /// `None` when it was deleted.
    pub(crate) versions: Versions<Option<CommentState>>,
}

impl Comment {
    /// What it is now; `None` if it was deleted.
    pub fn now(&self) -> Option<&CommentState> {
        self.versions.now().as_ref()
    }
}

/// Everything of a comment that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommentState {
    /// Its text.
    pub body: String,
    /// When it was last changed.
    pub updated: Stamp,
}
