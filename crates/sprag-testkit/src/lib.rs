//! What a store and the client are tested with.
//!
//! [`cases`] are what every store must do, and [`harness`] is what a store brings along to be
//! tested by them. [`fault`] loses requests and replies on the way. [`history`] records what every
//! process believed and when, and checks afterwards that it was true. [`process`] has processes
//! that can be killed, and [`torture`] does so all the time. [`redis_server`] has servers for
//! tests, each with a [`keeper`], and [`proxy`] is a network before them that can be broken.
//! [`git_server`] has git servers, [`small_disk`] is soon full. [`sequence`] is for stores that have a
//! port of the lock machine, [`passing`] for those that pass a lock on before that is written, and
//! [`crowd`] for those with a queue.

pub mod bent_clock;
pub mod cases;
pub mod crowd;
pub mod fault;
pub mod git_server;
pub mod harness;
pub mod history;
pub mod keeper;
pub mod passing;
pub mod peers;
pub mod postgres_server;
pub mod process;
pub mod proxy;
pub mod redis_server;
pub mod sequence;
pub mod small_disk;
pub mod support;
pub mod torture;
