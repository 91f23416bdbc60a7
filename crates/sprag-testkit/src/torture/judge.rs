//! [`settle`]: looks at what is left and judges the whole history.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sprag_core::{LeaseId, Mode, Store};

use crate::history::{Event, Op, Outcome, Recorder, Rules, check};
use crate::process::{Churn, GuardedFile};
use crate::support::now;

/// How long what was dropped at the very end may take to be gone.
const LAST_RELEASES: Duration = Duration::from_secs(10);

/// What the history of a run shows.
#[derive(Debug)]
pub struct Judgement {
    /// Grants in the history.
    pub grants: u64,
    /// Violations, with their timelines.
    pub found: Vec<String>,
}

/// Looks at the locks and the counters of `plan` after everybody is done, adds that to the
/// history and checks it.
///
/// # Panics
///
/// If the store, a counter or the history cannot be read.
pub async fn settle(
    store: &Arc<dyn Store>,
    plan: &Churn,
    history: &Path,
    rules: &Rules,
) -> Judgement {
    let recorder = Recorder::append_to(history).expect("the history can be written");
    let record = |event| recorder.record(event).expect("the history can be written");
    let nobody = LeaseId::from_u128(0);
    for lock in plan.names() {
        let file = GuardedFile::open(plan.file(&lock)).expect("the counter can be opened");
        let count = file.read(None).expect("the counter can be read").unwrap_or_default();
        let event = |op| Event::new("judge", nobody, &lock, Mode::Exclusive, op);
        let sent = Recorder::now_ns();
        record(event(Op::Counted).at(sent, sent).value(count));
        let deadline = now().plus(LAST_RELEASES.max(plan.ttl));
        loop {
            let sent = Recorder::now_ns();
            let view = store.inspect(&lock).await.expect("the store can be looked at");
            let holders: Vec<_> = view.holders.iter().map(|holder| holder.lease).collect();
            let waiters: Vec<_> = view.waiters.iter().map(|waiter| waiter.lease).collect();
            if holders.is_empty() && waiters.is_empty() || now() >= deadline {
                let look = event(Op::Final).at(sent, Recorder::now_ns());
                record(look.seen(holders, waiters));
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut events = Recorder::read(history).expect("the history can be read");
    forget_answered(&mut events);
    let grants = events.iter().filter(|event| event.op == Op::Granted).count() as u64;
    let found = check(&events, rules).iter().map(ToString::to_string).collect();
    Judgement { grants, found }
}

/// Before each write a process notes that it may have been done; if it lives it notes what became
/// of it. Only the writes of the dead stay unknown.
fn forget_answered(events: &mut Vec<Event>) {
    let key = |event: &Event| (event.attempt, event.value);
    let wrote = |event: &&Event| event.op == Op::Wrote;
    let unknown = |event: &Event| event.outcome == Some(Outcome::Unknown);
    let answered: HashSet<_> =
        events.iter().filter(wrote).filter(|event| !unknown(event)).map(key).collect();
    events.retain(|event| !(wrote(&event) && unknown(event) && answered.contains(&key(event))));
}
