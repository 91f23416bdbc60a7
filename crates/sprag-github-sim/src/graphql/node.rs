//! [`Node`]: an object that a query can look into.

use crate::api::render;
use crate::world::git::{Commit, Person};
use crate::world::issue::{Comment, CommentState, Issue, IssueState};
use crate::world::{Repo, User};

use serde_json::Value;

/// An object.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
    Query,
    Rate,
    User(&'a User),
    Repo(&'a Repo),
    Ref {
        repo: &'a Repo,
        name: &'a str,
        oid: &'a str,
    },
    Commit {
        repo: &'a Repo,
        oid: &'a str,
        commit: &'a Commit,
    },
    Tree(&'a str),
    Person(&'a Person),
    Issue {
        repo: &'a Repo,
        issue: &'a Issue,
        state: &'a IssueState,
    },
    Comment {
        repo: &'a Repo,
        comment: &'a Comment,
        state: &'a CommentState,
    },
    Label {
        repo: &'a Repo,
        name: &'a str,
    },
    /// One page of a list.
    Page(Page<'a>),
    PageInfo {
        next: bool,
        previous: bool,
        start: Option<usize>,
        end: Option<usize>,
    },
    /// What a mutation gives back.
    Payload {
        mutation: Value,
        subject: Option<Box<Self>>,
    },
}

/// One page of a list.
#[derive(Clone, Debug)]
pub(super) struct Page<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) total: usize,
    /// How many come before it.
    pub(super) skipped: usize,
}

impl Node<'_> {
    /// What `__typename` says.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Rate => "RateLimit",
            Self::User(_) => "User",
            Self::Repo(_) => "Repository",
            Self::Ref { .. } => "Ref",
            Self::Commit { .. } => "Commit",
            Self::Tree(_) => "Tree",
            Self::Person(_) => "GitActor",
            Self::Issue { issue, .. } if issue.pull.is_some() => "PullRequest",
            Self::Issue { .. } => "Issue",
            Self::Comment { .. } => "IssueComment",
            Self::Label { .. } => "Label",
            Self::Page(_) => "Connection",
            Self::PageInfo { .. } => "PageInfo",
            Self::Payload { .. } => "Payload",
        }
    }

    /// Whether `... on kind` takes it.
    pub(super) fn is(&self, kind: &str) -> bool {
        let interfaces: &[&str] = match self {
            Self::User(_) => &["Node", "Actor", "Assignee"],
            Self::Commit { .. } | Self::Tree(_) => &["Node", "GitObject"],
            Self::Issue { .. } => &["Node", "Assignable", "Closable", "Comment", "Labelable"],
            Self::Comment { .. } => &["Node", "Comment"],
            Self::Repo(_) | Self::Ref { .. } | Self::Label { .. } => &["Node"],
            _ => &[],
        };
        kind == self.kind() || interfaces.contains(&kind)
    }

    /// The id that GraphQL has for it.
    pub(super) fn id(&self) -> Option<String> {
        Some(match self {
            Self::User(user) => render::node("U", user.id),
            Self::Repo(repo) => render::node("R", repo.id),
            Self::Ref { repo, name, .. } => format!("REF_{}_{name}", repo.id),
            Self::Commit { repo, oid, .. } => format!("C_{}_{oid}", repo.id),
            Self::Tree(oid) => format!("T_{oid}"),
            Self::Issue { issue, .. } => render::node("I", issue.id),
            Self::Comment { comment, .. } => render::node("IC", comment.id),
            Self::Label { repo, name } => {
                render::node("LA", repo.labels.get(*name).copied().unwrap_or_default())
            }
            _ => return None,
        })
    }
}
