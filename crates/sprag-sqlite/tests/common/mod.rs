//! What the tests of this crate share.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it")]

use std::time::Duration;

use futures::executor::block_on;
use sprag_core::clock::{BootClock, Clock};
use sprag_core::entropy::OsEntropy;
use sprag_core::store::{Attempt, Bind, Grant, Released, Renewal, Renewed, Request, Takeover};
use sprag_core::{Holder, LeaseId, LockName, Mode, PartyId, Store};
use sprag_sqlite::SqliteStore;

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(crate) fn request(lock: &str) -> Request {
    Request {
        name: name(lock),
        lease: LeaseId::random(&OsEntropy),
        party: PartyId::random(&OsEntropy),
        mode: Mode::Exclusive,
        ttl: TTL,
        queue: false,
        priority: 0,
        holder: Holder::new("tester", "here"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    }
}

pub(crate) fn queued(lock: &str) -> Request {
    Request { queue: true, ..request(lock) }
}

pub(crate) fn attempt(store: &SqliteStore, request: &Request) -> Attempt {
    block_on(store.try_acquire(request)).unwrap()
}

/// Takes the lock or fails the test.
pub(crate) fn acquire(store: &SqliteStore, request: &Request) -> Grant {
    match attempt(store, request) {
        Attempt::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn release(store: &SqliteStore, request: &Request) -> Released {
    block_on(store.release(&request.name, request.lease)).unwrap()
}

pub(crate) fn renewal_of(request: &Request) -> Renewal {
    let (name, lease, ttl) = (request.name.clone(), request.lease, request.ttl);
    Renewal { name, lease, ttl, bind: Bind::Keep }
}

pub(crate) fn renew(store: &SqliteStore, request: &Request) -> Renewed {
    block_on(store.renew(&[renewal_of(request)])).unwrap().remove(0)
}

/// Waits for hints and asks again until the lock is granted. Returns how long it took, or fails
/// after ten seconds; no timer helps the hints.
pub(crate) fn wait_until_granted(store: &SqliteStore, request: &Request) -> Duration {
    let start = BootClock.now();
    let (done, result) = std::sync::mpsc::channel();
    let (store, request) = (store.clone(), request.clone());
    std::thread::spawn(move || {
        while !matches!(attempt(&store, &request), Attempt::Granted(_)) {
            sprag_core::block_on(store.changed(&request.name, request.lease));
        }
        done.send(()).unwrap();
    });
    result.recv_timeout(Duration::from_secs(10)).expect("the waiter was woken");
    BootClock.now().since(start)
}

/// Looks again and again until `state` holds, for at most ten seconds.
pub(crate) fn eventually(what: &str, state: impl Fn() -> bool) {
    let start = BootClock.now();
    while !state() {
        assert!(BootClock.now().since(start) < Duration::from_secs(10), "never: {what}");
        std::thread::yield_now();
    }
}
