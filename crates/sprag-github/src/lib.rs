//! Locks in a GitHub repository.

mod api;
mod budget;
mod call;
mod config;
mod error;
mod http;
mod ledger;
mod time;
mod token;

pub use budget::Limit;
pub use config::{Decides, GitHubConfig};
pub use ledger::GitHubLedger;
pub use token::Token;
