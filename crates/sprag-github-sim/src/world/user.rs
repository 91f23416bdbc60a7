//! Accounts and what their tokens may do.

/// An account.
#[derive(Clone, Debug)]
pub struct User {
    pub(crate) id: u64,
    /// Its name, in the spelling it was made with.
    pub login: String,
}

/// How far a token reaches into one kind of thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not at all.
    None,
    /// It may read.
    Read,
    /// It may read and write.
    Write,
}

/// What a token may do, whatever its owner may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Git data: references and commits.
    pub contents: Level,
    /// Issues and comments.
    pub issues: Level,
}

impl Access {
    /// Everything its owner may.
    pub const FULL: Self = Self { contents: Level::Write, issues: Level::Write };
    /// Issues, but no git data.
    pub const ISSUES_ONLY: Self = Self { contents: Level::None, issues: Level::Write };
    /// Nothing is written.
    pub const READ_ONLY: Self = Self { contents: Level::Read, issues: Level::Read };
}

/// What an account may do in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// See it, and comment.
    Read,
    /// Sort issues: labels, assignees.
    Triage,
    /// Push.
    Write,
    /// Everything.
    Admin,
}

impl Permission {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Triage => "triage",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) login: String,
    pub(crate) access: Access,
}
