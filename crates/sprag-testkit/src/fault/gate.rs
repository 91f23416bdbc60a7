//! [`Gate`]: holds somebody up until the test lets go.

use tokio::sync::watch;

use std::sync::Arc;

/// A gate that is closed at first. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    open: bool,
    arrived: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Waits until somebody has come to the gate.
    pub async fn reached(&self) {
        self.wait_for(|state| state.arrived > 0).await;
    }

    /// Comes to the gate and waits until it is open.
    pub async fn pass(&self) {
        self.0.send_modify(|state| state.arrived += 1);
        self.wait_for(|state| state.open).await;
    }

    async fn wait_for(&self, ready: impl Fn(&State) -> bool + Send + Sync) {
        // Fails only when the sender is gone, and that is part of `self`.
        drop(self.0.subscribe().wait_for(|state| ready(state)).await);
    }
}
