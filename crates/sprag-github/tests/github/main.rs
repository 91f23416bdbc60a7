//! The GitHub store on a simulated GitHub.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod assignment;
mod bad_input;
mod calls;
mod hostile;
mod ledger;
mod limits;
mod manager;
mod mirror;
mod peers;
mod place;
mod proof;
mod public;
mod real;
