//! Every case on the stores that need no server, with tasks and with processes.

mod ledger;
mod memory;
mod process;
mod proxy;
mod sqlite;
