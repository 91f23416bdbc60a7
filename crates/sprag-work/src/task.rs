//! [`Task`]: what a worker is given, and [`Outcome`]: what it gives back.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use sprag_core::Fence;

use crate::flow::Place;
use crate::item::Item;
use crate::name::ItemName;

/// An item that was claimed, and where to work on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The item.
    pub item: Item,
    /// The branch that shows the claim, where one does.
    pub branch: Option<String>,
    /// The fence of the claim: a later one is always larger.
    pub fence: Fence,
    /// Where to work: the claim's own worktree, the repository, or where one stands.
    pub directory: PathBuf,
    /// Whether that is a worktree of its own.
    pub has_worktree: bool,
    /// The item's folder, from the root of the repository, where it has one.
    pub folder: Option<String>,
    /// The issue that it is, where it is one.
    pub issue: Option<Issue>,
    /// What an earlier worker had left in the way, and what became of it.
    pub leftovers: Vec<Leftover>,
}

impl Task {
    /// Where the item's folder is, if it has one.
    pub fn path(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| self.directory.join(folder))
    }

    /// What a command learns about its item from its environment.
    pub fn variables(&self) -> Vec<(String, OsString)> {
        let place = &self.item.place;
        let mut set: Vec<(String, OsString)> = vec![
            ("SPRAG_ITEM".into(), self.item.name.as_str().into()),
            ("SPRAG_ITEM_STATE".into(), place.state.as_str().into()),
            ("SPRAG_ITEM_CATEGORY".into(), place.category.clone().unwrap_or_default().into()),
            ("SPRAG_ITEM_PRIORITY".into(), self.item.priority.to_string().into()),
        ];
        let mut put = |name: &str, value: OsString| set.push((name.to_owned(), value));
        if let Some(path) = self.path() {
            put("SPRAG_ITEM_PATH", path.into());
        }
        if let Some(branch) = &self.branch {
            put("SPRAG_BRANCH", branch.into());
        }
        if self.has_worktree {
            put("SPRAG_WORKTREE", self.directory.clone().into());
        }
        if let Some(issue) = &self.issue {
            put("SPRAG_ITEM_NUMBER", issue.number.to_string().into());
            put("SPRAG_ITEM_REPO", issue.repo.as_str().into());
            put("SPRAG_ITEM_TITLE", issue.title.as_str().into());
            put("SPRAG_ITEM_BODY", issue.body.as_str().into());
            put("SPRAG_ITEM_LABELS", issue.labels.join(",").into());
        }
        set
    }
}

/// What an issue says. People wrote it, and anybody may have: it is data, never a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// The repository that it is of.
    pub repo: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Its labels.
    pub labels: Vec<String>,
}

/// What came of working on an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on to the next state.
    Done {
        /// Its category, where it gets one.
        category: Option<String>,
    },
    /// It waits for an answer.
    Pending {
        /// The question.
        question: String,
    },
    /// It comes back to where it was before.
    Resumed {
        /// Its category, where it gets one.
        category: Option<String>,
    },
    /// It stays where it is, for somebody else.
    Released,
    /// As released; what was done is kept on a branch.
    Failed {
        /// Why.
        why: String,
    },
}

/// What became of an item and of the work on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The item, by the name that it has now.
    pub item: ItemName,
    /// Where it was.
    pub from: Place,
    /// Where it is; the same if it stayed.
    pub to: Place,
    /// How many commits came with it.
    pub commits: usize,
    /// The branch on which work was left that did not come to main.
    pub left_on: Option<String>,
    /// The main branch with the work in it; `None` if nothing was merged.
    pub merged: Option<sprag_ledger::Oid>,
    /// What the worker left on this machine that no merge can bring to main.
    pub leftovers: Vec<Leftover>,
}

/// What a worker left that did not come to main.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What it is.
    pub what: String,
    /// The folder, branch or stash in which it is kept; `None` for what git ignores, which was
    /// removed.
    pub kept_in: Option<String>,
}

impl Leftover {
    pub(crate) fn kept(what: impl Into<String>, place: impl Into<String>) -> Self {
        Self { what: what.into(), kept_in: Some(place.into()) }
    }

    pub(crate) fn removed(what: impl Into<String>) -> Self {
        Self { what: what.into(), kept_in: None }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = &self.what;
        match &self.kept_in {
            Some(place) => write!(f, "kept in {place}: {what}"),
            None => write!(f, "removed, as git ignores it: {what}"),
        }
    }
}
