//! [`Mailboxes`]: wake-ups for the waiters of this process, kept until they are read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::id::LeaseId;

/// One mailbox per lease that waits in this process.
///
/// A store opens the box *before* it asks for the lock, so a hint that arrives between the
/// answer and the wait is not lost.
#[derive(Debug, Default)]
pub struct Mailboxes(Mutex<HashMap<LeaseId, Arc<Notify>>>);

impl Mailboxes {
    /// Makes sure that hints for `lease` are kept from now on.
    pub fn open(&self, lease: LeaseId) {
        self.lock().entry(lease).or_default();
    }

    /// Drops the box and what is in it.
    pub fn close(&self, lease: LeaseId) {
        self.lock().remove(&lease);
    }

    /// Whether hints for `lease` are kept.
    pub fn is_open(&self, lease: LeaseId) -> bool {
        self.lock().contains_key(&lease)
    }

    /// Leaves a hint; nothing happens if nobody of this process waits with this lease.
    pub fn notify(&self, lease: LeaseId) {
        if let Some(mailbox) = self.lock().get(&lease) {
            mailbox.notify_one();
        }
    }

    /// Leaves a hint for everybody: something happened, it is not known to whom.
    pub fn notify_all(&self) {
        self.lock().values().for_each(|mailbox| mailbox.notify_one());
    }

    /// Waits for a hint, or takes the one that is there.
    pub async fn wait(&self, lease: LeaseId) {
        let mailbox = Arc::clone(self.lock().entry(lease).or_default());
        mailbox.notified().await;
    }

    /// How many leases have one.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LeaseId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
