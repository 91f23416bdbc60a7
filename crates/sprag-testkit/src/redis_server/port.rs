//! [`free_port`]: where a server of a test can listen.

use std::net::{Ipv4Addr, TcpListener};

/// A port that nobody listens on. Not one of those that the system gives to connections: a server
/// that is restarted wants the same one again.
///
/// # Panics
///
/// If there is none.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000));
    ports.take(1000).find(is_free).expect("there is a free port")
}
