//! [`Locks`]: a client of the store that a URL names.

use std::ops::Deref;
use std::sync::Arc;

use sprag_core::{Client, Holder, Result, RetryConfig, Store};

/// The locks of one store: the place to begin. Cheap to clone; all clones are one client.
///
/// It is a [`Client`] and can do all that a client can; beside that it implements
/// [`DistributedLock`](crate::DistributedLock).
///
/// # Examples
///
/// ```
/// # async fn example() -> sprag::Result<()> {
/// use sprag::Locks;
/// use std::time::Duration;
///
/// let locks = Locks::open("sqlite:")?;
/// let guard = locks
///     .lock("report")
///     .ttl(Duration::from_secs(30))
///     .wait(Duration::from_secs(60))
///     .acquire()
///     .await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    client: Client,
    retry: RetryConfig,
}

impl Locks {
    /// Opens the store that `url` names, with default options: see [`open`](crate::open).
    ///
    /// # Errors
    ///
    /// As [`open`](crate::open); unavailable if the operating system refuses another thread.
    pub fn open(url: &str) -> Result<Self> {
        Self::builder(url).open()
    }

    /// Other options for the store that `url` names.
    pub fn builder(url: &str) -> LocksBuilder<'_> {
        LocksBuilder { url, holder: None, allow_force: false, retry: RetryConfig::default() }
    }

    /// The locks of a store that is open already, be it one of your own.
    ///
    /// # Errors
    ///
    /// Unavailable if the operating system refuses another thread.
    pub fn from_store(store: Arc<dyn Store>) -> Result<Self> {
        Client::builder(store).build().map(Self::from)
    }

    /// How long [`DistributedLock::acquire`](crate::DistributedLock::acquire) waits; the default
    /// is [`RetryConfig::default`]. The requests of [`Client::lock`] have their own waiting time.
    #[must_use]
    pub const fn with_retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// How long [`DistributedLock::acquire`](crate::DistributedLock::acquire) waits.
    pub const fn retry(&self) -> RetryConfig {
        self.retry
    }

    /// The client itself.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

impl Deref for Locks {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl From<Client> for Locks {
    fn from(client: Client) -> Self {
        Self { client, retry: RetryConfig::default() }
    }
}

/// Options of [`Locks`], from [`Locks::builder`].
///
/// # Examples
///
/// ```
/// use sprag::{Holder, Locks, RetryConfig};
///
/// let locks = Locks::builder("memory:")
///     .holder(Holder::new("indexer-3", "node-a"))
///     .retry(RetryConfig::aggressive())
///     .open()?;
/// # Ok::<(), sprag::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct LocksBuilder<'a> {
    url: &'a str,
    holder: Option<Holder>,
    allow_force: bool,
    retry: RetryConfig,
}

impl LocksBuilder<'_> {
    /// Names the worker that all locks are taken for; by default this process.
    pub fn holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Allows [`Strategy::ForceAcquire`](crate::Strategy::ForceAcquire), which breaks exclusion.
    /// Off by default.
    pub const fn allow_force(mut self, allow: bool) -> Self {
        self.allow_force = allow;
        self
    }

    /// As [`Locks::with_retry`].
    pub const fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As [`Locks::open`]; bad input for a retry schedule that makes no sense.
    pub fn open(self) -> Result<Locks> {
        self.retry.validate()?;
        let mut client = Client::builder(crate::open(self.url)?).allow_force(self.allow_force);
        if let Some(holder) = self.holder {
            client = client.holder(holder);
        }
        Ok(Locks::from(client.build()?).with_retry(self.retry))
    }
}
