//! [`RedisSetup`]: what kind of Redis server is wanted.

use std::ffi::OsString;
use std::path::Path;

use super::certificates::Certificates;
use super::port::free_port;
use super::server::RedisServer;
use super::shifted_clock::ShiftedClock;

/// A Redis server that is to be started. It always has a Unix socket.
#[derive(Clone, Debug, Default)]
pub struct RedisSetup {
    pub(super) port: Option<u16>,
    pub(super) any_port: bool,
    pub(super) bus_port: Option<u16>,
    sentinel: Option<String>,
    pub(super) tls: Option<Certificates>,
    pub(super) password: Option<String>,
    clock: Option<ShiftedClock>,
    options: Vec<String>,
}

impl RedisSetup {
    /// A server that forgets everything when it ends, on a Unix socket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens on a free port, too.
    #[must_use]
    pub const fn tcp(mut self) -> Self {
        self.any_port = true;
        self
    }

    /// Listens on this port, too.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Listens on a free port, too, where it speaks TLS.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.tls = Some(certificates.clone());
        self.tcp()
    }

    /// Writes every change to a log before it answers, so that it survives a crash.
    ///
    /// With `everysec` it would not: while the disk is busy with the last second, what is answered
    /// is in no file yet, and a server that is killed then forgets it.
    #[must_use]
    pub fn log(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// Wants a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// Repeats what the server on this port does.
    #[must_use]
    pub fn replica_of(self, port: u16) -> Self {
        self.set("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Makes it a node of a Redis Cluster that nobody knows yet.
    #[must_use]
    pub fn cluster(mut self) -> Self {
        self.bus_port = Some(0);
        self.set("cluster-enabled", "yes")
            .set("cluster-announce-ip", "127.0.0.1")
            // Short enough for a test, long enough for a busy machine.
            .set("cluster-node-timeout", "2000")
            .set("cluster-replica-validity-factor", "0")
    }

    /// Makes it a Sentinel that watches the master on a port.
    #[must_use]
    pub fn sentinel(mut self, name: &str, port: u16) -> Self {
        self.sentinel = Some(format!(
            "sentinel monitor {name} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {name} 1000\n\
             sentinel failover-timeout {name} 4000\n"
        ));
        self
    }

    /// Lets it live by a clock that can be shifted.
    #[must_use]
    pub fn clock(mut self, clock: &ShiftedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Any other setting.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.options.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// Options as `redis-server` takes them.
    #[must_use]
    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().copied().map(str::to_owned));
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is none to start.
    pub async fn start(self) -> RedisServer {
        RedisServer::launch(self).await
    }

    /// Chooses the ports that may be any.
    pub(super) fn choose_ports(&mut self) {
        if self.any_port {
            self.port = Some(free_port());
        }
        self.bus_port = self.bus_port.map(|_| free_port());
    }

    /// The command that starts it in `folder`, where it may put files.
    pub(super) fn command(&self, folder: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(clock) = &self.clock {
            words.push("env".into());
            words.extend(clock.words());
        }
        words.push("redis-server".into());
        if let Some(text) = &self.sentinel {
            // It writes down in its file what it finds out.
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, text).expect("a file can be written");
            words.extend([file.into(), "--sentinel".into()]);
        }
        let port = self.port.unwrap_or(0).to_string();
        let (plain, tls) = if self.tls.is_some() { ("0", &*port) } else { (&*port, "0") };
        words.extend(["--port", plain, "--tls-port", tls].map(OsString::from));
        words.extend(["--bind", "127.0.0.1", "--save", ""].map(OsString::from));
        words.extend(["--unixsocket".into(), folder.join("redis.sock").into()]);
        words.extend(["--dir".into(), folder.into()]);
        // Otherwise the first replica waits for more of them to come.
        words.extend(["--repl-diskless-sync-delay", "0"].map(OsString::from));
        if let Some(port) = self.bus_port {
            words.extend(["--cluster-port".into(), port.to_string().into()]);
        }
        if let Some(certificates) = &self.tls {
            words.extend(certificates.options());
        }
        words.extend(self.options.iter().map(OsString::from));
        words
    }
}
