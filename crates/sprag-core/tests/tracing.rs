//! What somebody who listens with `tracing` hears about a lock.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use sprag_core::{Client, MemoryStore};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down what it hears, in order: spans by their names, events with the span they are in.
#[derive(Clone, Default)]
struct Listener(Arc<Heard>);

#[derive(Default)]
struct Heard {
    next: AtomicU64,
    names: Mutex<HashMap<u64, String>>,
    handles: Mutex<HashMap<u64, usize>>,
    lines: Mutex<Vec<String>>,
    said: Condvar,
}

/// What is told of a lock.
#[derive(Default)]
struct Told(HashMap<&'static str, String>);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Listener {
    fn say(&self, line: String) {
        self.0.lines.lock().unwrap().push(line);
        self.0.said.notify_all();
    }

    fn until(&self, what: &str) -> Vec<String> {
        let (lines, limit) = (self.0.lines.lock().unwrap(), Duration::from_secs(20));
        let missing = |lines: &mut Vec<String>| !lines.iter().any(|line| line == what);
        let (lines, waited) = self.0.said.wait_timeout_while(lines, limit, missing).unwrap();
        assert!(!waited.timed_out(), "no {what:?} in {lines:?}");
        lines.clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sprag::")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::SeqCst) + 1;
        let mut told = Told::default();
        span.record(&mut told);
        let name = format!("{} {}", span.metadata().name(), told.0["lock"]);
        self.say(format!("begin {name}"));
        self.0.names.lock().unwrap().insert(id, name);
        self.0.handles.lock().unwrap().insert(id, 1);
        Id::from_u64(id)
    }

    fn clone_span(&self, id: &Id) -> Id {
        *self.0.handles.lock().unwrap().get_mut(&id.into_u64()).unwrap() += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut handles = self.0.handles.lock().unwrap();
        let left = handles.get_mut(&id.into_u64()).unwrap();
        *left -= 1;
        if *left == 0 {
            let name = self.0.names.lock().unwrap()[&id.into_u64()].clone();
            self.say(format!("end {name}"));
        }
        *left == 0
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        let span = event.parent().map(|id| self.0.names.lock().unwrap()[&id.into_u64()].clone());
        self.say(format!("{} in {}", told.0["message"], span.unwrap_or_default()));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_lock_has_a_span_while_it_is_held_with_its_renewals_and_its_loss() {
    let listener = Listener::default();
    // The renewals are told by a thread of the client.
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let client = Client::new(Arc::new(MemoryStore::new()));
    let ttl = Duration::from_millis(300);
    let place = |lines: &[String], what: &str| {
        let found = lines.iter().position(|line| line == what);
        found.unwrap_or_else(|| panic!("no {what:?} in {lines:?}"))
    };

    let guard = client.lock("kept").ttl(ttl).acquire().await.unwrap();
    listener.until("renewed in sprag hold kept");
    guard.release().await.unwrap();
    let lines = listener.until("end sprag hold kept");
    let order = ["begin sprag acquire kept", "end sprag acquire kept", "begin sprag hold kept"];
    let order = order.into_iter().chain(["renewed in sprag hold kept", "end sprag hold kept"]);
    let order: Vec<_> = order.map(|what| place(&lines, what)).collect();
    assert!(order.is_sorted(), "{order:?} in {lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("lost")), "{lines:?}");

    let guard = client.lock("lost").ttl(ttl).no_renewal().acquire().await.unwrap();
    guard.lost().await;
    let lines = listener.until("end sprag hold lost");
    assert!(place(&lines, "lost in sprag hold lost") < place(&lines, "end sprag hold lost"));
    drop(guard);

    let guard = client.lock("given").ttl(ttl).acquire().await.unwrap();
    let ticket = guard.into_ticket().await.unwrap();
    listener.until("end sprag hold given");
    let guard = client.adopt(ticket).await.unwrap();
    guard.release().await.unwrap();
    let lines = listener.until("end sprag hold given");
    let count = |what: &str| lines.iter().filter(|line| *line == what).count();
    assert_eq!((count("begin sprag hold given"), count("lost in sprag hold lost")), (2, 1));
}
