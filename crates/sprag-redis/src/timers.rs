//! [`Timers`]: time for callers that may be on any runtime, or none.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::{ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;

use crate::error::error;

/// A thread that wakes sleepers, and does what must be done without its caller.
#[derive(Debug)]
pub(crate) struct Timers {
    handle: Handle,
    stop: Arc<Notify>,
}

impl Timers {
    pub(crate) fn start() -> Result<Self> {
        let none = || error(ErrorKind::Unavailable, "no thread can be started: raise the limits");
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| none().caused_by(e))?;
        let (handle, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let work = move || runtime.block_on(stopped.notified());
        let started = std::thread::Builder::new().name("sprag-redis-time".into()).spawn(work);
        started.map_err(|e| none().caused_by(e))?;
        Ok(Self { handle, stop })
    }

    /// Sleeps, on whichever runtime.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _entered = self.handle.enter();
        tokio::time::sleep(duration)
    }

    /// Does something on the thread.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.stop.notify_one();
    }
}
