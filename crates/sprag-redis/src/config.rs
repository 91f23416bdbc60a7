//! [`RedisConfig`]: where the server is and how patient we are.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use sprag_core::{Error, Operation, Result};

use crate::error::{STORE, from_redis};

/// How to open a [`RedisStore`](crate::RedisStore).
///
/// # Examples
///
/// ```
/// use sprag_redis::{Address, RedisConfig};
///
/// let config = RedisConfig::new(Address::Tcp("localhost".into(), 6379))
///     .password("secret")
///     .prefix("myapp:lock:");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) address: Address,
    username: Option<String>,
    password: Option<String>,
    database: u32,
    pub(crate) prefix: String,
    pub(crate) allow_eviction: bool,
    pub(crate) timeout: Duration,
}

/// Where a Redis server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("address", &self.address)
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// The prefix of all keys unless another is set.
    pub const PREFIX: &str = "sprag:";

    /// The server at `address`, with the defaults.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            database: 0,
            prefix: Self::PREFIX.into(),
            allow_eviction: false,
            timeout: Duration::from_secs(2),
        }
    }

    /// The user to log in as.
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The password to log in with.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The number of the database; 0 by default.
    #[must_use]
    pub const fn database(mut self, database: u32) -> Self {
        self.database = database;
        self
    }

    /// What stands before the name of a lock in its key; `sprag:` by default.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Accepts a server that may evict keys, and so forget locks. Off by default.
    #[must_use]
    pub const fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// How long to wait for a connection, and for an answer; 2 s by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::bad_input(Operation::Open, message).at(STORE));
        if self.prefix.contains(['{', '}']) {
            return bad(format!(
                "the prefix {:?} has a brace: the keys of a lock would not stay together",
                self.prefix
            ));
        }
        if self.timeout.is_zero() {
            return bad("a timeout of 0 leaves no time for an answer: give at least 1 ms".into());
        }
        Ok(())
    }

    pub(crate) fn connection(&self) -> Result<ConnectionInfo> {
        let address = match &self.address {
            Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database.into());
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        // Without it, small requests would wait for each other.
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(self.timeout);
        let info = address.into_connection_info().map_err(|e| from_redis(&self.address, &e))?;
        Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }
}
