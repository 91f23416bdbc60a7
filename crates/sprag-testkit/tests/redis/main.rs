//! Redis: every case on one server, in a Cluster and by majority, and what only Redis has.

mod cluster;
mod conformance;
mod crowd;
mod faults;
mod long_ttl;
mod peers;
mod places;
mod planned_failover;
mod quarantine;
mod redlock;
mod redlock_faults;
mod rewrite;
mod server;
mod shapes;
mod slots;
