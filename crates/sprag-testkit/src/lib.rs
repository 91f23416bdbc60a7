//! What a store and the client are tested with.
//!
//! [`harness`] is what a store brings along to be tested. [`history`] records what every process
//! believed and when, and checks afterwards that it was true.

pub mod harness;
pub mod history;
