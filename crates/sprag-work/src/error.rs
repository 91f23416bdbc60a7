//! [`Error`]: what could not be done with an item, and what to type next.

use std::fmt;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What could not be done, and what to do about it. The user's files and commits are as they were.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    facts: Vec<(&'static str, String)>,
    next: Vec<Next>,
}

/// What to do next: what for, and a command that can be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// What the command is for.
    pub what: String,
    /// The command.
    pub command: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, state or option that cannot be used.
    Input,
    /// The flow of states makes no sense.
    Flow,
    /// Not in a repository that work can be done in: no remote, no commits, git missing or old.
    Repository,
    /// There is no such item, or nothing that could be claimed.
    Nothing,
    /// Somebody else has the item.
    Held,
    /// The item is not claimed here.
    NotClaimed,
    /// The claim was lost: somebody else may have the item by now.
    Lost,
    /// What was done does not fit to what others did.
    Conflict,
    /// The remote does not take it: permissions, a protected branch, a hook.
    Refused,
    /// The remote cannot be reached, or does not answer.
    Unavailable,
    /// The remote allows no more requests for now.
    RateLimited,
    /// The operating system refuses: a full disk, permissions.
    System,
}

impl Error {
    /// Makes an error; the message names what it is about.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { kind, message, facts: Vec::new(), next: Vec::new() }))
    }

    /// A name, state or option that cannot be used.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// The operating system refuses something.
    pub fn system(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::System, format!("{what}: {error}"))
    }

    /// Adds a fact under a label of one word.
    #[must_use]
    pub fn fact(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.0.facts.push((label, text.into()));
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn next(mut self, what: impl Into<String>, command: impl Into<String>) -> Self {
        self.0.next.push(Next { what: what.into(), command: command.into() });
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// More about it.
    pub fn facts(&self) -> &[(&'static str, String)] {
        &self.0.facts
    }

    /// What to do next.
    pub fn nexts(&self) -> &[Next] {
        &self.0.next
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        self.0.facts.iter().try_for_each(|(label, text)| write!(f, "; {label}: {text}"))?;
        match self.0.next.first() {
            Some(Next { what, command }) => write!(f, "; to {what}: {command}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<sprag_core::Error> for Error {
    fn from(error: sprag_core::Error) -> Self {
        use sprag_core::ErrorKind as Core;
        let kind = match error.kind() {
            Core::Held | Core::Timeout | Core::QueueFull => ErrorKind::Held,
            Core::Lost(_) | Core::NotOwner => ErrorKind::Lost,
            Core::Unavailable | Core::Busy => ErrorKind::Unavailable,
            Core::RateLimited => ErrorKind::RateLimited,
            Core::BadInput => ErrorKind::Input,
            Core::Refused | Core::Unsupported | Core::Corrupt => ErrorKind::Refused,
            _ => ErrorKind::System,
        };
        Self::new(kind, error.to_string())
    }
}
