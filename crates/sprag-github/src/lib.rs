//! Locks in a GitHub repository: a ref decides who has a lock, the issue shows it to people.
//!
//! A lock is a ref below `refs/sprag/` that is compared and swapped, see [`GitHubLedger`]. The lock
//! `issue-123` is the one of issue 123, which then shows the worker's account as assignee and one
//! comment with who holds it, since when and what for. Neither of them decides anything: GitHub
//! lets any number of people be assigned, and its lists may be seconds old.
//!
//! All requests of one token and machine go through one budget, which keeps inside of GitHub's
//! limits ahead of time.

mod api;
mod assignment;
mod budget;
mod call;
mod client;
mod config;
#[cfg(test)]
mod day_tests;
mod diagnose;
mod error;
mod http;
mod issues;
mod ledger;
mod manager;
mod mirror;
mod pace;
mod store;
mod time;
mod token;

pub use assignment::AssignmentStore;
pub use client::{Comment, GitHubClient, Issue};
pub use config::{Decides, GitHubConfig};
pub use diagnose::forecast;
pub use issues::HttpClient;
pub use ledger::GitHubLedger;
pub use manager::{
    AcquireOptions, AcquireResult, ConflictStrategy, LockManager, LockManagerConfig, LockMetrics,
    LockStatus,
};
pub use mirror::{LockMetadata, LockNote, public_holder};
pub use sprag_ledger::Abandoned;
pub use store::{GitHubStore, open};
pub use token::Token;

use sprag_core::LockName;

/// The issue that a lock belongs to: `issue-123` and `123` to issue 123.
pub fn issue_of(name: &LockName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("issue-").unwrap_or(name.as_str());
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}
