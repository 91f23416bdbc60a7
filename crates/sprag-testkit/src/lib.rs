//! What a store and the client are tested with.
//!
//! [`history`] records what every process believed and when, and checks afterwards that it was
//! true.

pub mod history;
