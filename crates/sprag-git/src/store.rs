//! [`open`]: a store on a git remote.

use std::sync::Arc;

use sprag_core::{Capability, Result};
use sprag_ledger::{LedgerStore, Settings};

use crate::config::GitConfig;
use crate::error::STORE;
use crate::ledger::GitLedger;

/// What locks on a git remote can do.
pub fn ability() -> Capability {
    Settings::new(STORE).capability
}

/// Opens the store on a git remote. Does not talk to it yet.
///
/// # Errors
///
/// If there is no git, it is too old, or it knows no such remote.
///
/// # Examples
///
/// ```
/// use sprag_core::Client;
/// use sprag_git::{Git, GitConfig, open};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().to_str().unwrap().to_owned();
/// Git::new().ok(["init", "--quiet", "--bare", &path])?;
/// let client = Client::new(std::sync::Arc::new(open(GitConfig::url(path))?));
/// # futures::executor::block_on(async {
/// let guard = client.lock("report").acquire().await?;
/// guard.release().await?;
/// # Ok::<(), sprag_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(config: GitConfig) -> Result<LedgerStore> {
    let mut settings = Settings::new(STORE);
    settings.abandoned = config.abandoned;
    settings.poll = config.poll.clone();
    settings.observations.clone_from(&config.observations);
    LedgerStore::new(Arc::new(GitLedger::open(config)?), settings)
}
