//! git remotes: every case on one, over each transport, with answers that are lost or wrong.

mod conformance;
mod faults;
mod transports;
mod work;
