//! Locks on a git remote, and [`Git`], a safe way to run git.
//!
//! A lock is a reference below `refs/sprag/locks/` to a commit on the empty tree, whose message is
//! the lock's record. It changes hands by a push that compares what the reference was: exactly one
//! of any number of rivals wins, on any server.

mod cli;
mod config;
mod diagnose;
mod draft;
mod error;
mod git;
mod hidden_login;
mod ledger;
mod native;
mod object;
mod push;
mod redact;
mod store;
mod talk;
mod url;
mod version;
mod wire;

pub use config::GitConfig;
pub use error::{GitError, Trouble};
pub use git::{Git, Output};
pub use ledger::GitLedger;
pub use push::{Pushed, RefChange};
pub use sprag_ledger::Abandoned;
pub use store::{ability, open};
pub use version::Version;
