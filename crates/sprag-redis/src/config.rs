//! [`RedisConfig`]: where the server is and how patient we are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use sprag_core::{Error, Operation, Result};

use crate::error::STORE;

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
    pub(crate) place: Place,
    pub(crate) login: Login,
    pub(crate) tls: Option<Tls>,
    pub(crate) prefix: String,
    pub(crate) allow_eviction: bool,
    pub(crate) quarantine: Quarantine,
    pub(crate) longest_ttl: Duration,
    pub(crate) min_replicas: Option<u32>,
    pub(crate) timeout: Duration,
}

/// What is said to a server first.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// Where the locks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One server.
    Server(Address),
    /// The master that these sentinels name, and what they want to hear as a password.
    Sentinel { master: String, sentinels: Vec<Address>, login: SentinelLogin },
    /// A Cluster; some of its nodes.
    Cluster(Vec<Address>),
}

/// The password of the sentinels, which is not to be shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SentinelLogin(pub(crate) Option<String>);

impl fmt::Debug for SentinelLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// Where a Redis server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) => address.fmt(f),
            Self::Sentinel { master, .. } => write!(f, "the master {master:?}"),
            Self::Cluster(nodes) => {
                write!(f, "the Cluster node ")?;
                nodes.first().map_or(Ok(()), |node| node.fmt(f))
            }
        }
    }
}

impl Place {
    /// The first host that is dialed, if it is one.
    pub(crate) fn host(&self) -> String {
        let first = match self {
            Self::Server(address) => Some(address),
            Self::Sentinel { sentinels: nodes, .. } | Self::Cluster(nodes) => nodes.first(),
        };
        match first {
            Some(Address::Tcp(host, _)) => host.clone(),
            _ => String::new(),
        }
    }
}

/// When no lock is granted because a server may have forgotten who holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quarantine {
    /// When this client sees that the server was restarted without an append-only file that is
    /// written at once: until the longest TTL that it knows of has passed since.
    #[default]
    Witnessed,
    /// Also when it meets such a server for the first time.
    Always,
    /// Never. Two may hold a lock after a restart.
    Never,
}

/// How connections are secured.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl Tls {
    /// Believes the authorities in a PEM file, or else those that this machine believes; and shows
    /// a certificate of its own, from a PEM file with it and one with its key, if the server wants
    /// to see one.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or holds something else.
    pub fn new(authorities: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(match authorities {
            Some(file) => certificates(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        });
        if roots.is_empty() {
            let message = "no certificates of authorities: install ca-certificates, or name a file";
            return Err(bad_tls(message));
        }
        // Named, so that a program with two providers does not have to choose one for us.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad_tls(e.to_string()))?
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| no_use(key, &e))?;
                let shown = config.with_client_auth_cert(certificates(certificate)?, secret);
                shown.map_err(|e| no_use(certificate, &e))?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if found.is_empty() => Err(no_use(file, &"it holds no certificate")),
        Ok(found) => Ok(found),
        Err(e) => Err(no_use(file, &e)),
    }
}

fn no_use(file: &Path, why: &dyn fmt::Display) -> Error {
    bad_tls(format!("{} is no use for TLS: {why}", file.display()))
}

fn bad_tls(message: impl Into<String>) -> Error {
    Error::bad_input(Operation::Open, message).at(STORE)
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("place", &self.place)
            .field("database", &self.login.database)
            .field("prefix", &self.prefix)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// The prefix of all keys unless another is set.
    pub const PREFIX: &str = "sprag:";

    /// The server at `address`, with the defaults.
    pub fn new(address: Address) -> Self {
        Self::at(Place::Server(address))
    }

    /// The master that sentinels know as `master`.
    pub fn sentinel(master: impl Into<String>, sentinels: Vec<Address>) -> Self {
        Self::at(Place::Sentinel {
            master: master.into(),
            sentinels,
            login: SentinelLogin::default(),
        })
    }

    /// The Cluster that these nodes belong to; one that answers is enough.
    pub fn cluster(nodes: Vec<Address>) -> Self {
        Self::at(Place::Cluster(nodes))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            login: Login::default(),
            tls: None,
            prefix: Self::PREFIX.into(),
            allow_eviction: false,
            quarantine: Quarantine::default(),
            longest_ttl: Duration::from_secs(30),
            min_replicas: None,
            timeout: Duration::from_secs(2),
        }
    }

    /// The user to log in as.
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.login.username = Some(username.into());
        self
    }

    /// The password to log in with.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// The password of the sentinels; none by default. Does nothing elsewhere.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        if let Place::Sentinel { login, .. } = &mut self.place {
            login.0 = Some(password.into());
        }
        self
    }

    /// The number of the database; 0 by default.
    #[must_use]
    pub const fn database(mut self, database: u32) -> Self {
        self.login.database = database;
        self
    }

    /// Secures the connections.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
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

    /// When a restarted server is given time to let old locks run out.
    #[must_use]
    pub const fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// The longest TTL that anybody uses, as far as it is known beforehand; 30 s by default. What
    /// this client asks for itself is known. It is how long a quarantine lasts.
    #[must_use]
    pub const fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = ttl;
        self
    }

    /// How many replicas must have a lock before it counts as held. Behind Sentinel by default all that
    /// the master has when it is connected to, elsewhere 0. It makes the
    /// loss of a lock in a failover unlikely, not impossible.
    #[must_use]
    pub const fn min_replicas(mut self, count: u32) -> Self {
        self.min_replicas = Some(count);
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
        match &self.place {
            Place::Sentinel { sentinels: nodes, .. } | Place::Cluster(nodes)
                if nodes.is_empty() =>
            {
                bad("no address is given: name at least one".into())
            }
            Place::Cluster(_) if self.login.database != 0 => {
                bad("a Cluster has only database 0: leave the number out".into())
            }
            _ => Ok(()),
        }
    }
}
