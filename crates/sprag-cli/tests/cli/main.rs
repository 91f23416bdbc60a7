//! The commands of `sprag`, as real processes in a home of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod breaking;
mod completions;
mod config;
mod demo;
mod docs;
mod exits;
mod json;
mod leases;
mod left_out;
mod log;
mod passwords;
mod postgres;
mod secrets;
mod support;
mod texts;
mod trust;
mod watching;
