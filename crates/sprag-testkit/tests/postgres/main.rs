//! PostgreSQL: every case on leases and on advisory locks, and what only PostgreSQL has.

mod advisory;
mod advisory_bare;
mod advisory_faults;
mod advisory_network;
mod advisory_programs;
mod crowds;
mod disasters;
mod faults;
mod lease;
mod misfits;
mod passing;
mod processes;
mod renewals;
mod rights;
mod rows;
mod server;
mod swept;
mod texts;
mod wakeups;
