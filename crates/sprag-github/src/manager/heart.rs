//! [`Heart`]: gives a sign of life more often than the leases need it, while there is plenty.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sprag_core::store::{Bind, Renewal};
use sprag_core::{ErrorKind, Result, Store};

use super::Held;
use crate::error::error;
use crate::store::GitHubStore;

/// A thread that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Heart(#[expect(dead_code, reason = "it is there to be dropped")] Sender<()>);

impl Heart {
    pub(super) fn start(
        every: Duration,
        ttl: Duration,
        store: GitHubStore,
        held: Arc<Held>,
    ) -> Result<Self> {
        let (sender, over) = channel::<()>();
        let no_thread = |cause: std::io::Error| {
            error(ErrorKind::Unavailable, "no thread for heartbeats").caused_by(cause)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(no_thread)?;
        let beat = move || {
            // A heartbeat of no length would be all that this thread ever does.
            let every = every.max(Duration::from_millis(10));
            while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if !store.is_budget_ample() {
                    continue;
                }
                // One lock is enough: the sign of life is for all of them.
                let any = {
                    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                    held.values().find(|taken| taken.guard.is_valid()).map(|taken| Renewal {
                        name: taken.guard.name().clone(),
                        lease: taken.guard.lease(),
                        ttl,
                        bind: Bind::Keep,
                    })
                };
                if let Some(renewal) = any
                    && let Err(error) = runtime.block_on(store.renew(&[renewal]))
                {
                    tracing::debug!(target: "sprag::github", %error, "no heartbeat this time");
                }
            }
        };
        let thread = std::thread::Builder::new().name("sprag-heartbeat".into());
        thread.spawn(beat).map_err(no_thread)?;
        Ok(Self(sender))
    }
}
