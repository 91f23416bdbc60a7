//! [`PostgresConfig`]: where the server is, which database, and how patient we are.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sprag_core::{Error, Operation, Result};
use tokio_postgres::config::SslMode;

use crate::error::STORE;

/// How to open a [`PostgresStore`](crate::PostgresStore).
///
/// # Examples
///
/// ```
/// use sprag_postgres::{Address, PostgresConfig};
///
/// let config = PostgresConfig::new(Address::Tcp("localhost".into(), 5432), "app")
///     .user("me")
///     .password("secret")
///     .namespace("billing");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) address: Address,
    pub(crate) database: String,
    user: Option<String>,
    password: Option<String>,
    pub(crate) namespace: String,
    pub(crate) kind: LockKind,
    pub(crate) tls: TlsMode,
    pub(crate) root_certificate: Option<PathBuf>,
    pub(crate) timeout: Duration,
    pub(crate) max_locks: usize,
}

/// Where a PostgreSQL server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// The folder of a Unix domain socket, and the port that its name ends with.
    Unix(PathBuf, u16),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(folder, port) => write!(f, "{}:{port}", folder.display()),
        }
    }
}

/// What locks are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// Leases in rows of a table.
    #[default]
    Lease,
    /// Advisory locks of a session.
    Advisory,
}

impl LockKind {
    /// The kind as it is written in URLs and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Advisory => "advisory",
        }
    }
}

/// Whether the connection is encrypted, in the words of PostgreSQL's own `sslmode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server can; whoever it is.
    #[default]
    Prefer,
    /// Always; whoever the server is, unless a root certificate is given.
    Require,
    /// Always, and only with the server whose certificate says that it is this host.
    VerifyFull,
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("address", &self.address)
            .field("database", &self.database)
            .field("namespace", &self.namespace)
            .field("kind", &self.kind)
            .field("tls", &self.tls)
            .field("has_password", &self.password.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.database)
    }
}

impl PostgresConfig {
    /// The namespace unless another is set.
    pub const NAMESPACE: &str = "default";
    const MAX_NAMESPACE: usize = 255;

    /// A database of the server at `address`, with the defaults.
    pub fn new(address: Address, database: impl Into<String>) -> Self {
        Self {
            address,
            database: database.into(),
            user: None,
            password: None,
            namespace: Self::NAMESPACE.into(),
            kind: LockKind::default(),
            tls: TlsMode::default(),
            root_certificate: None,
            timeout: Duration::from_secs(2),
            max_locks: 1000,
        }
    }

    /// The user to log in as; by default the one who runs this process.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password to log in with.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Which locks of the database are meant: equal names in two namespaces are two locks.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What locks are made of. A namespace has one kind for ever.
    #[must_use]
    pub const fn kind(mut self, kind: LockKind) -> Self {
        self.kind = kind;
        self
    }

    /// What locks are made of.
    pub const fn lock_kind(&self) -> LockKind {
        self.kind
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn tls(mut self, tls: TlsMode) -> Self {
        self.tls = tls;
        self
    }

    /// A file with the certificates that the server's must come from, instead of the system's.
    #[must_use]
    pub fn root_certificate(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificate = Some(file.into());
        self
    }

    /// How long to wait for a connection, and for an answer; 2 s by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many advisory locks this process may hold at a time; 1,000 by default. All processes
    /// share the server's table, which has `max_locks_per_transaction` times `max_connections`
    /// entries, and when it is full nobody gets any lock, not even on a table.
    #[must_use]
    pub const fn max_locks(mut self, max_locks: usize) -> Self {
        self.max_locks = max_locks;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::bad_input(Operation::Open, message).at(STORE));
        let space = &self.namespace;
        if space.is_empty() || space.len() > Self::MAX_NAMESPACE || space.contains(char::is_control)
        {
            return bad(format!(
                "the namespace {space:?} cannot be: give it 1 to {} bytes without control \
                 characters",
                Self::MAX_NAMESPACE
            ));
        }
        if self.timeout.is_zero() {
            return bad("a timeout of 0 leaves no time for an answer: give at least 1 ms".into());
        }
        Ok(())
    }

    /// What the client library is told.
    pub(crate) fn connection(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.dbname(&self.database);
        if let Some(user) = &self.user {
            config.user(user);
        }
        if let Some(password) = &self.password {
            config.password(password);
        }
        config.ssl_mode(match self.tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        });
        config
    }
}
