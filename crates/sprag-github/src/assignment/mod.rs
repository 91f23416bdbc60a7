//! [`AssignmentStore`]: locks by comments alone, for tokens that may not write contents. Only L1.
//!
//! Whoever wants the lock of an issue writes a claim as a comment, lets it settle, and has it if it
//! is the oldest one that is alive, twice in a row. GitHub's lists may be older than the time to
//! settle, so two may believe that they have it.

mod claim;
mod desk;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sprag_core::store::{
    Attempt, Conversion, Converted, Evicted, Eviction, Listing, Page, Released, Renewal, Renewed,
    Request,
};
use sprag_core::{
    Capability, Error, ErrorKind, LeaseId, Level, LockName, LockView, Operation, Result, Store,
};
use tokio::sync::oneshot;

use self::desk::Desk;
use crate::config::GitHubConfig;
use crate::error::{STORE, error};
use crate::issues::HttpClient;
use crate::store::GitHubStore;

/// Locks on issues by comments. [L1](Level::Efficiency): usually one holder.
#[derive(Clone, Debug)]
pub struct AssignmentStore {
    capability: Capability,
    desk: Arc<Desk>,
}

impl AssignmentStore {
    /// Opens the store. Nothing is asked of GitHub yet.
    ///
    /// # Errors
    ///
    /// If there is no token.
    pub fn open(config: &GitHubConfig) -> Result<Self> {
        let mut capability = GitHubStore::ability();
        capability.level = Level::Efficiency;
        (capability.shared, capability.permits, capability.audit) = (false, false, false);
        capability.queue = false;
        if config.is_local() {
            capability.min_ttl = Duration::from_secs(1);
        }
        let client = Arc::new(HttpClient::new(config)?);
        Ok(Self { capability, desk: Arc::new(Desk::new(config, client)) })
    }

    /// Asks on a thread of its own, which goes on if nobody waits for it any more.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Desk) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (told, answer) = oneshot::channel();
        let desk = Arc::clone(&self.desk);
        let thread = std::thread::Builder::new().name("sprag-claim".into());
        let gone = || error(ErrorKind::Unavailable, "no thread for GitHub");
        let run = move || drop(told.send(ask(&desk)));
        thread.spawn(run).map_err(|cause| gone().caused_by(cause))?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn unable(&self, operation: Operation, what: &str) -> Error {
        let message = format!("mode=assignment is L1 and {what}: use github://OWNER/REPO instead");
        Error::new(ErrorKind::Unsupported, operation, message).at(STORE)
    }
}

#[async_trait]
impl Store for AssignmentStore {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    async fn try_acquire(&self, request: &Request) -> Result<Attempt> {
        let request = request.clone();
        self.ask(move |desk| desk.acquire(&request)).await
    }

    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<Renewed>> {
        let leases = leases.to_vec();
        self.ask(move |desk| leases.iter().map(|renewal| desk.renew(renewal)).collect()).await
    }

    async fn convert(&self, _: &Conversion) -> Result<Converted> {
        Err(self.unable(Operation::Convert, "has exclusive locks only"))
    }

    async fn release(&self, name: &LockName, lease: LeaseId) -> Result<Released> {
        let name = name.clone();
        self.ask(move |desk| desk.release(&name, lease)).await
    }

    async fn withdraw(&self, name: &LockName, lease: LeaseId) -> Result<()> {
        let name = name.clone();
        self.ask(move |desk| desk.withdraw(&name, lease)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockView> {
        let name = name.clone();
        self.ask(move |desk| desk.inspect(&name)).await
    }

    async fn list(&self, _: &Listing) -> Result<Page> {
        Err(self.unable(Operation::List, "cannot list locks without reading every issue"))
    }

    async fn evict(&self, eviction: &Eviction) -> Result<Evicted> {
        let eviction = eviction.clone();
        self.ask(move |desk| desk.evict(&eviction)).await
    }

    async fn changed(&self, _: &LockName, _: LeaseId) {
        std::future::pending::<()>().await;
    }
}
