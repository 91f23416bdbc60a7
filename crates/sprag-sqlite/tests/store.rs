//! The contract, on one or two handles.

mod common;

use common::*;
use futures::executor::block_on;
use sprag_core::store::{
    Attempt, Bind, Conversion, Converted, Evicted, Eviction, Listing, Released, Renewal, Renewed,
};
use sprag_core::{Loss, Mode, Store};
use sprag_sqlite::SqliteStore;

#[test]
fn two_handles_exclude_each_other_and_fences_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (request("job"), request("job"));
    let first = acquire(&one, &a);
    assert_eq!(acquire(&one, &a), first);
    assert!(matches!(attempt(&two, &b), Attempt::Held(_)));
    assert_eq!(release(&one, &a), Released::Freed);
    assert_eq!(release(&one, &a), Released::AlreadyGone(Loss::Released));
    let second = acquire(&two, &b);
    assert!(second.fence > first.fence);
    assert_eq!(renew(&two, &b), Renewed::Held(second));
    assert_eq!(renew(&one, &a), Renewed::Lost(Loss::Released));
}

#[test]
fn a_release_hands_over_and_wakes_the_waiter_of_another_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (queued("job"), queued("job"));
    acquire(&one, &a);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    release(&one, &a);
    let took = wait_until_granted(&two, &b);
    assert!(took.as_millis() < 500, "{took:?}");
}

#[test]
fn dropping_a_handle_frees_its_locks_and_wakes_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b, c) = (queued("job"), queued("job"), request("other"));
    acquire(&one, &a);
    let kept = acquire(&one, &sprag_core::store::Request { detached: true, ..c.clone() });
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    let clone = one.clone();
    drop(one);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    drop(clone);
    let took = wait_until_granted(&two, &b);
    assert!(took.as_millis() < 500, "{took:?}");
    // A detached lease stays, and can be renewed and released from elsewhere.
    assert_eq!(renew(&two, &c), Renewed::Held(kept));
    assert_eq!(release(&two, &c), Released::Freed);
}

#[test]
fn a_detached_waiter_is_woken_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let a = queued("job");
    let b = sprag_core::store::Request { detached: true, ..queued("job") };
    acquire(&one, &a);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    release(&one, &a);
    let took = wait_until_granted(&two, &b);
    assert!(took.as_millis() < 500, "{took:?}");
}

#[test]
fn the_second_in_line_is_woken_when_the_first_dies_while_holding() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let [one, two, three] = [(); 3].map(|()| SqliteStore::open(&path).unwrap());
    let (a, b, c) = (queued("job"), queued("job"), queued("job"));
    acquire(&one, &a);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    assert!(matches!(attempt(&three, &c), Attempt::Queued(_)));
    release(&one, &a);
    // The second holds it now without having asked again; the third asked when it was second.
    drop(two);
    let took = wait_until_granted(&three, &c);
    assert!(took.as_millis() < 500, "{took:?}");
}

#[test]
fn a_dead_waiter_in_the_middle_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let [one, two, three] = [(); 3].map(|()| SqliteStore::open(&path).unwrap());
    let (a, b, c) = (queued("job"), queued("job"), queued("job"));
    acquire(&one, &a);
    assert!(matches!(attempt(&two, &b), Attempt::Queued(_)));
    assert!(matches!(attempt(&three, &c), Attempt::Queued(_)));
    drop(two);
    // Its death is a hint, and asking again does not lead to a storm of hints.
    block_on(three.changed(&c.name, c.lease));
    assert!(matches!(attempt(&three, &c), Attempt::Queued(_)));
    let again = futures::FutureExt::now_or_never(three.changed(&c.name, c.lease));
    assert_eq!(again, None);
    release(&one, &a);
    wait_until_granted(&three, &c);
}

#[test]
fn conversion_eviction_and_withdrawal_work() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("sprag.db")).unwrap();
    let reader = sprag_core::store::Request { mode: Mode::Shared, ..queued("rw") };
    let upgradable = sprag_core::store::Request { mode: Mode::Upgradable, ..queued("rw") };
    acquire(&store, &reader);
    let fence = acquire(&store, &upgradable).fence;
    let (to, lease) = (Mode::Exclusive, upgradable.lease);
    let conversion = Conversion { name: name("rw"), lease, fence, to, queue: true };
    assert_eq!(block_on(store.convert(&conversion)).unwrap(), Converted::Waiting);
    release(&store, &reader);
    block_on(store.changed(&conversion.name, conversion.lease));
    let Converted::Done(grant) = block_on(store.convert(&conversion)).unwrap() else {
        panic!("the upgrade was not granted");
    };
    let waiter = queued("rw");
    assert!(matches!(attempt(&store, &waiter), Attempt::Queued(_)));
    block_on(store.withdraw(&waiter.name, waiter.lease)).unwrap();
    assert!(block_on(store.inspect(&name("rw"))).unwrap().waiters.is_empty());
    let eviction = Eviction {
        name: name("rw"),
        fence: grant.fence,
        by: "admin".into(),
        reason: "test".into(),
    };
    assert!(matches!(block_on(store.evict(&eviction)).unwrap(), Evicted::Broken(_)));
    assert_eq!(block_on(store.evict(&eviction)).unwrap(), Evicted::NotHeld);
    assert!(matches!(renew(&store, &upgradable), Renewed::Lost(Loss::Broken { .. })));
}

#[test]
fn lists_are_paged_in_the_order_of_names() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("sprag.db")).unwrap();
    for lock in ["b/2", "a", "b/1", "b/Ü", "b/3", "c"] {
        acquire(&store, &request(lock));
    }
    let free = request("b/0");
    acquire(&store, &free);
    release(&store, &free);
    attempt(&store, &queued("b/3"));
    let list = |prefix: &str, limit, after: Option<&str>, contended| {
        let (prefix, after) = (prefix.to_owned(), after.map(name));
        let listing = Listing { prefix, after, limit, contended };
        let page = block_on(store.list(&listing)).unwrap();
        let names: Vec<_> = page.locks.iter().map(|view| view.name.to_string()).collect();
        (names.join(" "), page.next.map(|name| name.to_string()))
    };
    assert_eq!(list("", 0, None, false), ("a b/1 b/2 b/3 b/Ü c".into(), None));
    assert_eq!(list("b/", 2, None, false), ("b/1 b/2".into(), Some("b/2".into())));
    assert_eq!(list("b/", 2, Some("b/2"), false), ("b/3 b/Ü".into(), None));
    assert_eq!(list("", 0, None, true), ("b/3".into(), None));
}

#[test]
fn many_leases_are_renewed_at_once_and_a_damaged_record_costs_only_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let store = SqliteStore::open(&path).unwrap();
    let requests: Vec<_> = (0..600).map(|n| request(&format!("job/{n}"))).collect();
    for request in &requests {
        acquire(&store, request);
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("UPDATE lock SET record = 'nonsense' WHERE name = 'job/3'", []).unwrap();
    let renewals: Vec<_> = requests
        .iter()
        .map(|request| Renewal {
            name: request.name.clone(),
            lease: request.lease,
            ttl: TTL,
            bind: Bind::Keep,
        })
        .collect();
    let renewed = block_on(store.renew(&renewals)).unwrap();
    for (number, answer) in renewed.iter().enumerate() {
        let lost = *answer == Renewed::Lost(Loss::StateLost);
        assert_eq!(lost, number == 3, "{number}: {answer:?}");
    }
    // Nobody gets the lock whose record cannot be read.
    let error = block_on(store.try_acquire(&request("job/3"))).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("job/3"), "{error}");
    assert!(block_on(store.inspect(&name("job/3"))).unwrap_err().is_corrupt());
    // All others are listed.
    let page = block_on(store.list(&Listing::default())).unwrap();
    assert_eq!(page.locks.len(), requests.len() - 1);
    assert!(page.locks.iter().all(|view| view.name.as_str() != "job/3"));
}

#[test]
fn threads_of_one_process_never_hold_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("sprag.db")).unwrap();
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let wish = queued("counter");
                    while !matches!(attempt(&store, &wish), Attempt::Granted(_)) {
                        block_on(store.changed(&wish.name, wish.lease));
                    }
                    use std::sync::atomic::Ordering::SeqCst;
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                    release(&store, &wish);
                }
            });
        }
    });
}

#[test]
fn the_lifeline_is_the_locked_session_file_and_closes_on_exec() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let (a, b) = (request("job"), request("job"));
    acquire(&one, &a);
    let line = one.lifeline().unwrap();
    let flags = rustix::io::fcntl_getfd(&line).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let line = std::fs::File::from(line);
    assert_eq!(line.metadata().unwrap().ino(), one.session_file().metadata().unwrap().ino());
    // Closing it does not end the session while the store has it open too.
    drop(line);
    assert!(matches!(attempt(&two, &b), Attempt::Held(_)));
}

#[test]
fn a_lent_thread_listens_for_the_other_waiters_and_leaves_nobody_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sprag.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    // Nothing but a wake-up ends this: the timers are the client's.
    let wait = |waiter: sprag_core::store::Request, lends: bool| {
        let (two, (sender, receiver)) = (two.clone(), std::sync::mpsc::channel());
        assert!(matches!(attempt(&two, &waiter), Attempt::Queued(_)));
        std::thread::spawn(move || {
            while !matches!(attempt(&two, &waiter), Attempt::Granted(_)) {
                let changed = two.changed(&waiter.name, waiter.lease);
                if lends { sprag_core::block_on(changed) } else { block_on(changed) }
            }
            release(&two, &waiter);
            sender.send(()).unwrap();
        });
        move || receiver.recv_timeout(std::time::Duration::from_secs(20)).unwrap()
    };
    for round in 0..200 {
        let names = ["a", "b", "c"];
        let held = names.map(queued);
        for held in &held {
            acquire(&one, held);
        }
        let waiting = [(0, true), (1, false), (2, round % 3 == 0)]
            .map(|(place, lends)| wait(queued(names[place]), lends));
        for place in [[0, 1, 2], [1, 0, 2], [2, 1, 0]][round % 3] {
            release(&one, &held[place]);
            if round % 2 == 0 {
                waiting[place]();
            }
        }
        if round % 2 == 1 {
            waiting.iter().for_each(|wait| wait());
        }
    }
}
