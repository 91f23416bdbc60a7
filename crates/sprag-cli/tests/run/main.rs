//! `sprag run`, with real processes and real terminals. One file per subject.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod containers;
mod deadlock;
mod death;
mod ends;
mod forced;
mod given_back;
mod input;
mod loss;
mod nested;
mod once;
mod overlap;
mod races;
mod redis;
mod reentrant;
mod sharing;
mod signals;
mod slots;
mod support;
mod taking;
mod terminal;
mod waiting;
