//! [`GitHubSource`]: items that are the open issues of a repository on GitHub.
//!
//! ```text
//!   open issues with the labels, the most urgent and then the oldest first
//!     -> no open pull request, no person assigned, nobody's lock
//!     -> lock issue-N (a ref decides) -> still open? -> assignee and comment -> work
//!     -> close or relabel -> the comment says what came of it -> release
//! ```
//!
//! GitHub's lists may be seconds old, the lock is not. So whoever gets the lock of an issue that
//! somebody held before waits until what that one did is visible everywhere, and looks again.

mod board;
mod claim;
mod finish;
mod list;
mod rules;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::{Client, Holder, LockName, LockView};
use sprag_github::{GitHubClient, GitHubConfig, GitHubStore};

pub use self::claim::GitHubClaim;
pub use self::rules::{After, GitHubRules};

use crate::error::{Error, Result};
use crate::git::RUN_TTL;
use crate::name::ItemName;
use crate::repo::Desk;

/// Items that are the open issues of a repository on GitHub.
///
/// # Guarantees
///
/// The [contract](crate::Source) of a source, by the lock on each issue, with one difference: GitHub
/// cannot close an issue and release its lock in one step. A worker that dies after its command and
/// before the issue is closed leaves an issue on which somebody works again.
#[derive(Clone, Debug)]
pub struct GitHubSource {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rules: GitHubRules,
    repo: String,
    spans: Spans,
    store: GitHubStore,
    client: Client,
    holder: Holder,
    /// Where to work.
    directory: PathBuf,
    desk: Desk,
    /// Timers for whoever waits on a thread of its own.
    runtime: tokio::runtime::Runtime,
    known: Mutex<Known>,
}

/// What was seen a moment ago.
#[derive(Debug, Default)]
struct Known {
    locks: Option<(Moment, HashMap<u64, LockView>)>,
    /// When the holder of an issue was looked at last.
    looked: HashMap<u64, Moment>,
    /// Open pull requests, by issue.
    pulls: HashMap<u64, (Moment, Vec<u64>)>,
    /// What this process finished, while lists may still show it.
    finished: HashMap<u64, Moment>,
}

/// How patient a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// How late GitHub's answers may be.
    pub lag: Duration,
    /// How old what is known about locks may be when an issue is chosen.
    pub status_ttl: Duration,
    /// How long a claim lasts without a sign of life, while its process runs.
    pub run_ttl: Duration,
}

impl Default for Spans {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lag: seconds(10), status_ttl: seconds(5), run_ttl: RUN_TTL }
    }
}

impl GitHubSource {
    /// Opens the issues of the rules' repository. Nothing is asked of GitHub yet.
    ///
    /// # Errors
    ///
    /// Flow if the rules make no sense; refused if there is no token.
    pub fn open(rules: &GitHubRules, spans: Spans, holder: Holder) -> Result<Self> {
        rules.check()?;
        let mut config = GitHubConfig::parse(rules.repo()?)?.lag(spans.lag);
        if let Some(api) = &rules.api {
            config = config.api(api)?;
        }
        if let Some(limits) = rules.limits {
            config = config.limits(limits);
        }
        Self::with_config(rules, config, spans, holder)
    }

    /// As [`open`](Self::open), with more to be said about the repository.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn with_config(
        rules: &GitHubRules,
        config: GitHubConfig,
        spans: Spans,
        holder: Holder,
    ) -> Result<Self> {
        let system = |what: &'static str| move |error: std::io::Error| Error::system(what, &error);
        let Some(folder) = config.remembered("work") else {
            let message = "claims are remembered below $XDG_STATE_HOME or $HOME: set one of them";
            return Err(Error::input(message));
        };
        let store = GitHubStore::open(&config.clone().show_later(true))?;
        let client = Client::builder(Arc::new(store.clone())).holder(holder.clone()).build()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Ok(Self {
            inner: Arc::new(Inner {
                rules: rules.clone(),
                repo: config.shown(),
                spans,
                store,
                client,
                holder,
                directory: std::env::current_dir().map_err(system("the directory is gone"))?,
                desk: Desk::new(folder),
                runtime: runtime.map_err(system("there are no timers"))?,
                known: Mutex::default(),
            }),
        })
    }

    /// Waits for the store, on this thread.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.inner.runtime.block_on(future)
    }

    fn github(&self) -> &dyn GitHubClient {
        self.inner.store.client().as_ref()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an issue that somebody named: `issue-12`, `12` or `#12`.
    fn number(name: &str) -> Result<u64> {
        let digits = name.strip_prefix("issue-").or_else(|| name.strip_prefix('#')).unwrap_or(name);
        digits.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
            Error::input(format!("{name:?} is no issue: write its number, such as issue-12"))
                .next("see all", "sprag work ls")
        })
    }
}

/// The name of an issue as an item.
fn item_name(number: u64) -> Result<ItemName> {
    ItemName::new(format!("issue-{number}"))
}

/// The lock of an issue.
fn lock_name(number: u64) -> Result<LockName> {
    Ok(LockName::new(format!("issue-{number}"))?)
}

fn now() -> Moment {
    BootClock.now()
}
