//! Locks on a git remote, and [`Git`], a safe way to run git.
//!
//! A lock is a reference below `refs/sprag/locks/` to a commit on the empty tree, whose message is
//! the lock's record. It changes hands by a push that compares what the reference was: exactly one
//! of any number of rivals wins, on any server.

mod error;
mod git;
mod push;
mod redact;
mod talk;
mod version;

pub use error::{GitError, Trouble};
pub use git::{Git, Output};
pub use push::{Pushed, RefChange};
pub use version::Version;
