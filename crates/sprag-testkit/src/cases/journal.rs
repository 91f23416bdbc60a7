//! [`Journal`]: a history of one lock and of what it guards, kept while a case runs.
#![expect(clippy::unwrap_used, reason = "a case fails by panicking")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sprag_core::clock::Moment;
use sprag_core::{Client, Fence, LockGuard, LockRequest, LockState, Mode, Result, Store};

use crate::history::{Event, Op, Outcome, Recorder, Rules, check};
use crate::process::Recording;
use crate::support::{let_time_pass, look, name, new_lease, until_unused};

/// So many grants are worth to be judged.
pub(super) const ENOUGH: usize = 8;

/// What the lock guards: a counter that takes a write only with a fence that is not smaller than
/// the last.
#[derive(Debug, Default)]
struct Counter {
    fence: Fence,
    value: u64,
}

/// One lock's history. Clones write to the same.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    recorder: Arc<Recorder>,
    counter: Arc<Mutex<Counter>>,
    lock: &'static str,
}

impl Journal {
    pub(super) fn new(lock: &'static str) -> Self {
        let recorder = Arc::new(Recorder::in_memory());
        Self { recorder, counter: Arc::default(), lock }
    }

    /// A client whose requests are written down under the name of `process`.
    pub(super) fn client(&self, store: Arc<dyn Store>, process: &str) -> Client {
        let recorder = Arc::clone(&self.recorder);
        Client::new(Arc::new(Recording::new(store, recorder, process.to_owned())))
    }

    /// Acquires the lock, increments the counter if it is alone, stays for a while, and releases.
    pub(super) async fn visit(
        &self,
        process: &str,
        request: LockRequest,
        stay: Duration,
    ) -> Result<()> {
        let sent = Recorder::now_ns();
        let guard = request.acquire().await?;
        let event = |op| {
            let (lease, mode) = (guard.lease(), guard.mode());
            Event::new(process, lease, guard.name(), mode, op).fence(guard.fence())
        };
        let granted = event(Op::Granted).at(sent, Recorder::now_ns());
        self.record(granted.valid_until(nanos(guard.valid_until())));
        self.record(now(event(Op::Entered)));
        let read = self.counter().value;
        tokio::select! {
            _ = guard.lost() => self.record(now(event(Op::Lost))),
            () = let_time_pass(stay) => {}
        }
        if guard.mode() == Mode::Exclusive {
            self.write(&guard, &event(Op::Wrote), read + 1);
        }
        self.record(now(event(Op::Left)));
        if let LockState::Lost(_) = guard.state() {
            self.record(now(event(Op::Lost)));
        }
        guard.release().await.map(|_| ())
    }

    /// Writes without asking whether the lock is still held: the fence is what protects.
    fn write(&self, guard: &LockGuard, event: &Event, value: u64) {
        let sent = Recorder::now_ns();
        let mut counter = self.counter();
        let outcome = if counter.fence <= guard.fence() {
            *counter = Counter { fence: guard.fence(), value };
            Outcome::Accepted
        } else {
            Outcome::Rejected
        };
        drop(counter);
        let wrote = event.clone().value(value).outcome(outcome);
        self.record(wrote.at(sent, Recorder::now_ns()));
    }

    /// Waits until the lock is unused and checks the whole history; `count` is what the counter
    /// must have come to, if that is known.
    pub(super) async fn finish(&self, client: &Client, count: Option<u64>, rules: &Rules) {
        until_unused(client.store(), self.lock).await;
        let event = |op| Event::new("judge", new_lease(), &name(self.lock), Mode::Exclusive, op);
        let sent = Recorder::now_ns();
        let view = look(client.store(), self.lock).await;
        let holders = view.holders.iter().map(|holder| holder.lease).collect();
        let waiters = view.waiters.iter().map(|waiter| waiter.lease).collect();
        let last = event(Op::Final).at(sent, Recorder::now_ns());
        self.record(last.seen(holders, waiters));
        let value = self.counter().value;
        self.record(now(event(Op::Counted)).value(value));
        let violations = check(&self.recorder.events(), rules);
        assert!(violations.is_empty(), "{}", list(&violations));
        if let Some(count) = count {
            assert_eq!(value, count, "increments were lost");
        }
        let grants = self.grants();
        assert!(grants >= ENOUGH, "only {grants} grants prove little");
    }

    /// How often the lock was granted.
    pub(super) fn grants(&self) -> usize {
        self.recorder.events().iter().filter(|event| event.op == Op::Granted).count()
    }

    fn record(&self, event: Event) {
        self.recorder.record(event).unwrap();
    }

    fn counter(&self) -> std::sync::MutexGuard<'_, Counter> {
        self.counter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn list(violations: &[impl ToString]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

fn now(event: Event) -> Event {
    let now = Recorder::now_ns();
    event.at(now, now)
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX)
}
