//! Redis servers of every shape, each gone with the test that started it.
//!
//! [`RedisServer`] is one process, and [`RedisSetup`] says which: with a port, with a log, with
//! TLS, with a password, with a clock that can be shifted, as the replica of another.
//! [`RedisSentinels`] watch a master and its replicas, and [`RedisCluster`] is one of six nodes;
//! [`SharedCluster`] is one for all tests.

mod certificates;
mod cluster;
mod port;
mod sentinels;
mod server;
mod setup;
mod shared_cluster;
mod shifted_clock;
mod talk;

pub use certificates::Certificates;
pub use cluster::RedisCluster;
pub use port::free_port;
pub use sentinels::RedisSentinels;
pub use server::RedisServer;
pub use setup::RedisSetup;
pub use shared_cluster::{SharedCluster, keep_shared_cluster};
pub use shifted_clock::ShiftedClock;
pub use talk::Talk;
