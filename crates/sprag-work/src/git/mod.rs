//! [`GitSource`]: items that are folders on the main branch of a git remote.
//!
//! ```text
//!   ready --> claim: lock + branch, one swap --> worktree --> work
//!                |                                             | done: upload M; then one swap:
//!                | somebody else was faster                    |   main -> M, branch gone,
//!                v                                             v   lock free, upload gone
//!              next item                                  worktree and local branch gone
//! ```
//!
//! Whatever happens in between, the lock's record is compared in the swap that moves main: whoever
//! has lost its claim cannot move the item, and who has moved it has no claim left.

mod board;
mod claim;
mod finish;
mod list;
mod recover;
mod release;
mod stats;
mod sweep;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{Client, Holder};
use sprag_git::GitConfig;
use sprag_ledger::LedgerStore;

pub use self::claim::GitClaim;
pub use self::recover::{Fate, Recover, Recovered};
pub use self::write::NewItem;

use crate::error::Result;
use crate::flow::{Flow, Rules};
use crate::repo::Repo;

/// How long a claim without a process lasts.
pub const CLAIM_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the claim of a running process lasts without a sign of life.
pub const RUN_TTL: Duration = Duration::from_secs(300);

/// Items that are folders on the main branch of a git remote.
///
/// # Guarantees
///
/// The [contract](crate::Source) of a source, by the lock on each item: see [`LedgerStore`]. The
/// branch `{state}-{item}` that people see is made and deleted in the same swap as the lock is
/// taken and released; one that somebody pushed by hand counts as a claim. The branch that is
/// checked out, the index and the files of the repository one stands in are never touched.
#[derive(Clone, Debug)]
pub struct GitSource {
    pub(crate) repo: Repo,
    pub(crate) flow: Flow,
    pub(crate) root: String,
    pub(crate) category: Option<String>,
    pub(crate) store: LedgerStore,
    pub(crate) client: Client,
    pub(crate) holder: Holder,
    pub(crate) run_ttl: Duration,
}

impl GitSource {
    /// Items of the repository around a directory, claimed by locks on its remote.
    ///
    /// # Errors
    ///
    /// Repository if there is none to work in; flow if the rules make no sense.
    pub fn open(directory: &Path, rules: &Rules, holder: Holder) -> Result<Self> {
        let repo = Repo::discover(directory, rules)?;
        let seen = repo.desk().folder("seen")?;
        let config = GitConfig::remote(repo.remote_name(), repo.top()).observed_in(seen);
        Self::new(repo, rules, sprag_git::open(config)?, holder)
    }

    /// Items of this repository, claimed by locks of this store.
    ///
    /// # Errors
    ///
    /// Flow if the rules make no sense; system if there is no thread for the client.
    pub fn new(repo: Repo, rules: &Rules, store: LedgerStore, holder: Holder) -> Result<Self> {
        let client = Client::builder(Arc::new(store.clone())).holder(holder.clone()).build()?;
        Ok(Self {
            flow: rules.flow()?,
            root: rules.root().to_owned(),
            category: rules.category.clone(),
            repo,
            store,
            client,
            holder,
            run_ttl: RUN_TTL,
        })
    }

    /// How long a claim lasts without a sign of life, while its process runs.
    #[must_use]
    pub fn run_ttl(mut self, ttl: Duration) -> Self {
        self.run_ttl = ttl;
        self
    }

    /// The repository one stands in.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// The flow of states.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The folder that the items are below.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The locks of the items.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Waits for the store, on this thread.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}
