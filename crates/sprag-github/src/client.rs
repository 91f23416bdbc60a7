//! [`GitHubClient`]: what is asked about issues, as a trait that tests can stand in for.

use std::fmt;

use sprag_core::{ErrorKind, Result};

use crate::error::error;

/// Issues and their comments. All calls block; the store makes them on a thread of its own.
///
/// Nothing here decides who has a lock: it only shows it to people. The first four methods are all
/// that a stand-in for a test has to have.
///
/// # Examples
///
/// ```
/// use sprag_github::{Comment, GitHubClient, Issue};
/// use sprag_core::Result;
///
/// #[derive(Debug)]
/// struct OneIssue;
///
/// impl GitHubClient for OneIssue {
///     fn get_issue(&self, number: u64) -> Result<Issue> {
///         Ok(Issue { number, ..Issue::default() })
///     }
///     fn assign_issue(&self, number: u64, assignee: &str) -> Result<Issue> {
///         Ok(Issue { number, assignees: vec![assignee.into()], ..Issue::default() })
///     }
///     fn unassign_issue(&self, number: u64, _: &str) -> Result<Issue> {
///         self.get_issue(number)
///     }
///     fn add_comment(&self, _: u64, body: &str) -> Result<Comment> {
///         Ok(Comment { id: 1, body: body.into(), ..Comment::default() })
///     }
/// }
/// assert_eq!(OneIssue.assign_issue(7, "octocat")?.assignees, ["octocat"]);
/// # Ok::<(), sprag_core::Error>(())
/// ```
pub trait GitHubClient: Send + Sync + fmt::Debug {
    /// Looks at an issue.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be asked.
    fn get_issue(&self, number: u64) -> Result<Issue>;

    /// Adds an assignee. GitHub ignores who may not be assigned, so look at the issue it returns.
    ///
    /// # Errors
    ///
    /// If the issue cannot be changed.
    fn assign_issue(&self, number: u64, assignee: &str) -> Result<Issue>;

    /// Takes an assignee away.
    ///
    /// # Errors
    ///
    /// If the issue cannot be changed.
    fn unassign_issue(&self, number: u64, assignee: &str) -> Result<Issue>;

    /// Writes a comment, of which everybody who follows the issue is notified.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn add_comment(&self, number: u64, body: &str) -> Result<Comment>;

    /// Changes a comment, of which nobody is notified.
    ///
    /// # Errors
    ///
    /// If it cannot be changed.
    fn edit_comment(&self, comment: u64, body: &str) -> Result<Comment> {
        let (_, _) = (comment, body);
        Err(unable("edit comments"))
    }

    /// Deletes a comment.
    ///
    /// # Errors
    ///
    /// If it cannot be deleted.
    fn delete_comment(&self, comment: u64) -> Result<()> {
        let _ = comment;
        Err(unable("delete comments"))
    }

    /// Looks at a comment; `None` if it is gone.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    fn get_comment(&self, comment: u64) -> Result<Option<Comment>> {
        let _ = comment;
        Err(unable("read comments"))
    }

    /// All comments of an issue, the oldest first, and GitHub's time at which they were read, in
    /// seconds since 1970.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    fn list_comments(&self, number: u64) -> Result<(Vec<Comment>, u64)> {
        let _ = number;
        Err(unable("list comments"))
    }

    /// The name of the account whose token this is; `None` if it has none, as an App has not.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    fn account(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Open issues with all of these labels, the oldest first. Pull requests are left out.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    fn list_issues(&self, labels: &[String]) -> Result<Vec<Issue>> {
        let _ = labels;
        Err(unable("list issues"))
    }

    /// The numbers of open pull requests that say they will close the issue.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    fn linked_pull_requests(&self, number: u64) -> Result<Vec<u64>> {
        let _ = number;
        Err(unable("find pull requests"))
    }

    /// Closes an issue as done.
    ///
    /// # Errors
    ///
    /// If it cannot be changed.
    fn close_issue(&self, number: u64) -> Result<Issue> {
        let _ = number;
        Err(unable("close issues"))
    }

    /// Adds labels and takes others away.
    ///
    /// # Errors
    ///
    /// If it cannot be changed.
    fn relabel_issue(&self, number: u64, add: &[String], remove: &[String]) -> Result<()> {
        let (_, _, _) = (number, add, remove);
        Err(unable("change labels"))
    }
}

fn unable(what: &str) -> sprag_core::Error {
    error(ErrorKind::Unsupported, format!("this client cannot {what}"))
}

/// An issue, as far as we look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issue {
    /// Its number in the repository.
    pub number: u64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Whether it is closed.
    pub closed: bool,
    /// Whether its conversation is locked, so that only some may comment.
    pub locked: bool,
    /// Whether it is a pull request, which has a number among the issues.
    pub pull_request: bool,
    /// The accounts it is assigned to.
    pub assignees: Vec<String>,
    /// Its labels.
    pub labels: Vec<String>,
    /// When it was written, as GitHub writes times.
    pub created_at: String,
}

impl Issue {
    /// When it was written, in seconds since 1970 by GitHub's clock.
    pub fn created_unix(&self) -> Option<u64> {
        crate::time::parse(&self.created_at)
    }
}

/// A comment on an issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comment {
    /// Its number among all comments of GitHub.
    pub id: u64,
    /// The account that wrote it.
    pub author: String,
    /// Its text.
    pub body: String,
    /// When it was changed last, by GitHub's clock.
    pub updated_at: String,
    /// Whether its author owns the repository, or works in it.
    pub by_member: bool,
}
