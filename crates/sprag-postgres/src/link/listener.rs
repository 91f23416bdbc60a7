//! How a process with leases is woken on its connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sprag_core::LeaseId;

use super::connect::Line;
use super::ear::{Hearer, Listening};
use super::{Desk, Lane, Link};

impl Link {
    /// The connection, if this process is woken on it.
    pub(crate) fn listening(&self) -> Option<Arc<Lane>> {
        let line = self.desk.line()?;
        let Hearer::Leases(listening) = line.lane.hearer() else { return None };
        listening.is_on().then(|| Arc::clone(&line.lane))
    }

    /// A lease waits to be woken. `heard` is on which connection it would have been, before it was asked
    /// for.
    pub(crate) fn listen(&self, lease: LeaseId, heard: Option<&Arc<Lane>>) {
        if let Some(line) = self.desk.line()
            && !heard.is_some_and(|lane| Arc::ptr_eq(lane, &line.lane))
        {
            begin(&self.desk, &line, Some(lease));
        }
    }

    /// From now on it is heard, on each connection, that locks were taken away. Whether it was before.
    pub(crate) fn hear_evictions(&self) -> bool {
        self.desk.hears_evictions.store(true, Ordering::SeqCst);
        if self.listening().is_some() {
            return true;
        }
        if let Some(line) = self.desk.line() {
            begin(&self.desk, &line, None);
        }
        false
    }
}

/// Begins to listen, unless that is done already.
pub(super) fn begin(desk: &Arc<Desk>, line: &Arc<Line>, lease: Option<LeaseId>) {
    if let (Hearer::Leases(listening), Some(runtime)) = (line.lane.hearer(), desk.runtime.get())
        && listening.add(lease)
    {
        runtime.spawn(listen(Arc::clone(desk), Arc::clone(line), listening.clone()));
    }
}

/// Asks for what is told to this process. If that fails, whoever waits asks again some time, and with that
/// for this too: a message that is lost costs time, never the lock.
async fn listen(desk: Arc<Desk>, line: Arc<Line>, listening: Listening) {
    let _errand = line.lane.errand();
    // The name is made of letters and digits only.
    let asked = line.tell(format!("LISTEN {}; LISTEN sprag_evicted", desk.channel));
    let answer = tokio::time::timeout(desk.connector.config.timeout, asked).await;
    let is_on = matches!(answer, Ok(Ok(())));
    tracing::debug!(target: "sprag::postgres", is_on, "listening");
    if answer.is_err() {
        // It may still be done, on a connection that nobody else should wait for either.
        line.doubt(None);
    }
    listening.answered(is_on);
}
