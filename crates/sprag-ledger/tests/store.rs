//! What is particular to locks on a ledger: signs of life, takeovers, late swaps, companions.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "store/history.rs"]
mod history;
#[path = "store/sessions.rs"]
mod sessions;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use sprag_core::clock::ManualClock;
use sprag_core::entropy::OsEntropy;
use sprag_core::store::{Attempt, Bind, Eviction, Released, Renewal, Renewed, Request, Takeover};
use sprag_core::{
    AuditEntry, AuditKind, AuditQuery, Error, ErrorKind, Fence, Holder, LeaseId, LockName, Loss,
    Mode, Operation, PartyId, Result, Store,
};
use sprag_ledger::{
    Abandoned, Change, Companion, Concluded, Entry, Fault, Ledger, LedgerStore, MemoryLedger, New,
    Oid, RefName, Settings, Swapped,
};

const TTL: Duration = Duration::from_secs(60);

/// Several processes on one ledger, and time that passes when told.
struct World {
    ledger: MemoryLedger,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        clock.advance(Duration::from_secs(1000));
        Self { ledger: MemoryLedger::default(), clock }
    }

    fn process(&self, abandoned: Abandoned) -> LedgerStore {
        self.process_on(Arc::new(self.ledger.clone()), abandoned)
    }

    /// A process that builds on what others have seen, as commands do.
    fn command(&self, seen: &Path) -> LedgerStore {
        let mut settings = Settings::new("ledger");
        settings.observations = Some(seen.to_owned());
        self.with(Arc::new(self.ledger.clone()), settings)
    }

    fn process_on(&self, ledger: Arc<dyn Ledger>, abandoned: Abandoned) -> LedgerStore {
        let mut settings = Settings::new("ledger");
        settings.abandoned = abandoned;
        self.with(ledger, settings)
    }

    fn with(&self, ledger: Arc<dyn Ledger>, settings: Settings) -> LedgerStore {
        LedgerStore::with_clock(ledger, settings, Arc::<ManualClock>::clone(&self.clock)).unwrap()
    }

    fn line(&self) -> Arc<Line> {
        Arc::new(Line { ledger: self.ledger.clone(), cut: AtomicBool::new(false) })
    }

    /// Ends a process, and waits until its thread is gone: it would see time pass that the dead do
    /// not see.
    fn dies(&self, store: LedgerStore) {
        let before = Arc::strong_count(&self.clock);
        drop(store);
        while Arc::strong_count(&self.clock) >= before {
            std::thread::yield_now();
        }
    }

    fn references(&self) -> Vec<RefName> {
        let all = self.ledger.list("refs/").unwrap();
        all.into_iter().map(|(name, _)| name).collect()
    }

    /// Lets a session go on for a while, with a sign of life in time each time.
    fn keep_alive(&self, store: &LedgerStore, request: &Request, rounds: u32) {
        for _ in 0..rounds {
            self.clock.advance(TTL / 3);
            assert!(matches!(renew(store, request), Renewed::Held(_)));
        }
    }
}

/// The way of one process to the ledger, which can be cut. Its thread goes on when time passes, and
/// would give up what is over.
#[derive(Debug)]
struct Line {
    ledger: MemoryLedger,
    cut: AtomicBool,
}

impl Line {
    fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    fn end(&self) -> Result<&MemoryLedger> {
        if self.cut.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, Operation::Acquire, "it is cut"));
        }
        Ok(&self.ledger)
    }
}

impl Ledger for Line {
    fn tips(&self, names: &[RefName]) -> Result<Vec<Option<Oid>>> {
        self.end()?.tips(names)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        self.end()?.list(prefix)
    }

    fn entries(&self, tips: &[(RefName, Oid)]) -> Result<Vec<Entry>> {
        self.end()?.entries(tips)
    }

    fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>> {
        self.end()?.swap(changes)
    }

    fn history(&self, name: &RefName, limit: usize) -> Result<Vec<(Oid, Entry)>> {
        self.end()?.history(name, limit)
    }
}

fn request(name: &str) -> Request {
    Request {
        name: LockName::new(name).unwrap(),
        lease: LeaseId::random(&OsEntropy),
        party: PartyId::random(&OsEntropy),
        mode: Mode::Exclusive,
        ttl: TTL,
        queue: false,
        priority: 0,
        holder: Holder::new("worker", "here"),
        detached: false,
        fixed: false,
        takeover: Takeover::No,
        resize: false,
    }
}

fn thief(name: &str) -> Request {
    let holder = Holder::new("thief", "there");
    Request { takeover: Takeover::Overdue(Duration::ZERO), holder, ..request(name) }
}

fn try_acquire(store: &LedgerStore, request: &Request) -> Attempt {
    block_on(store.try_acquire(request)).unwrap()
}

fn acquire(store: &LedgerStore, request: &Request) -> Fence {
    match try_acquire(store, request) {
        Attempt::Granted(grant) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

fn renew(store: &LedgerStore, request: &Request) -> Renewed {
    let (name, lease) = (request.name.clone(), request.lease);
    let renewal = Renewal { name, lease, ttl: request.ttl, bind: Bind::Keep };
    block_on(store.renew(&[renewal])).unwrap().remove(0)
}

fn release(store: &LedgerStore, request: &Request) -> Released {
    block_on(store.release(&request.name, request.lease)).unwrap()
}

fn is_held(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Held(_))
}

/// F17: nobody is robbed who gives signs of life, however long; whoever stops is, and only after
/// its whole TTL was seen to pass.
#[test]
fn only_the_silent_are_taken_over() {
    let world = World::new();
    let (holder, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let (held, wish) = (request("deploy"), thief("deploy"));
    let fence = acquire(&holder, &held);
    for _ in 0..6 {
        assert!(is_held(&try_acquire(&other, &wish)));
        world.keep_alive(&holder, &held, 1);
    }
    assert!(is_held(&try_acquire(&other, &wish)));
    world.dies(holder);
    world.clock.advance(TTL);
    assert!(is_held(&try_acquire(&other, &wish)), "before the 5 % for clocks of other speed");
    world.clock.advance(TTL / 20);
    match try_acquire(&other, &wish) {
        Attempt::Granted(grant) => assert!(grant.fence > fence && grant.took_over),
        other => panic!("not granted: {other:?}"),
    }
}

/// Who was slow finds out at its next sign of life, be there other locks that it still has.
#[test]
fn who_was_taken_over_learns_it_and_keeps_the_rest() {
    let (world, abandoned) = (World::new(), Abandoned::Stays);
    let line = world.line();
    let slow = world.process_on(Arc::<Line>::clone(&line), abandoned);
    let other = world.process(abandoned);
    let short = request("short");
    let long = Request { ttl: TTL * 10, ..request("long") };
    acquire(&slow, &short);
    acquire(&slow, &long);
    assert!(is_held(&try_acquire(&other, &thief("short"))));
    assert!(is_held(&try_acquire(&other, &thief("long"))));
    line.cut(true);
    world.clock.advance(TTL * 2);
    acquire(&other, &thief("short"));
    assert!(is_held(&try_acquire(&other, &thief("long"))), "its time is not over");
    line.cut(false);
    let stolen = Loss::Stolen { by: "thief".into(), forced: false };
    assert_eq!(renew(&slow, &short), Renewed::Lost(stolen));
    assert!(matches!(renew(&slow, &long), Renewed::Held(_)));
    assert_eq!(release(&slow, &long), Released::Freed);
}

/// A sign of life that arrives after the thief looked makes its swap fail.
#[test]
fn a_sign_of_life_at_the_last_moment_saves_the_holder() {
    let world = World::new();
    let (holder, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let held = request("deploy");
    acquire(&holder, &held);
    assert!(is_held(&try_acquire(&other, &thief("deploy"))));
    world.clock.advance(TTL / 2);
    // Its answer is lost, so the holder does not know; the thief finds it all the same.
    world.ledger.fail(Fault::LoseReply);
    let (name, lease) = (held.name.clone(), held.lease);
    let renewal = Renewal { name, lease, ttl: TTL, bind: Bind::Keep };
    assert!(block_on(holder.renew(&[renewal])).unwrap_err().is_unavailable());
    world.clock.advance(TTL / 3 * 2);
    assert!(is_held(&try_acquire(&other, &thief("deploy"))));
}

/// A reader who leaves finds the other one silent, but is told otherwise by the swap. It must not
/// go by what it saw before.
#[test]
fn who_leaves_does_not_push_aside_a_reader_that_has_given_a_sign_since() {
    let world = World::new();
    let (reader, leaving) = (world.process(Abandoned::Freed), world.process(Abandoned::Freed));
    let shared = |name| Request { mode: Mode::Shared, ..request(name) };
    let (stays, leaves) = (shared("report"), shared("report"));
    acquire(&reader, &stays);
    acquire(&leaving, &leaves);
    // The one that leaves has seen the other now, and does not look again.
    world.keep_alive(&reader, &stays, 2);
    assert!(matches!(renew(&leaving, &leaves), Renewed::Held(_)));
    world.clock.advance(TTL / 2);
    assert!(matches!(renew(&reader, &stays), Renewed::Held(_)));
    assert_eq!(release(&leaving, &leaves), Released::Freed);
    assert!(matches!(renew(&reader, &stays), Renewed::Held(_)), "pushed aside while it was alive");
}

/// What stays for all to see is free for those who wait where that is chosen.
#[test]
fn the_abandoned_stay_or_are_free() {
    let world = World::new();
    let (stays, freed) = (world.process(Abandoned::Stays), world.process(Abandoned::Freed));
    let dead = world.process(Abandoned::Stays);
    acquire(&dead, &request("deploy"));
    world.dies(dead);
    for store in [&stays, &freed] {
        assert!(is_held(&try_acquire(store, &request("deploy"))));
    }
    world.clock.advance(TTL * 2);
    assert!(is_held(&try_acquire(&stays, &request("deploy"))));
    acquire(&freed, &request("deploy"));
}

/// A lease that nobody renews lives by itself: the signs of life of its session do not keep it.
#[test]
fn a_fixed_lease_ends_although_its_session_lives() {
    let world = World::new();
    let (holder, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let fixed = Request { fixed: true, ..request("fixed") };
    let kept = request("kept");
    acquire(&holder, &fixed);
    acquire(&holder, &kept);
    assert!(is_held(&try_acquire(&other, &request("fixed"))));
    world.keep_alive(&holder, &kept, 4);
    acquire(&other, &request("fixed"));
    assert!(matches!(renew(&holder, &fixed), Renewed::Lost(_)));
}

/// A lease without a process ends for commands that look only once each.
#[test]
fn a_detached_lease_ends_for_those_who_come_and_go() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    for (seen, name) in [("of the holder too", "taken"), ("of others", "looked at")] {
        let seen = folder.path().join(seen);
        let detached = Request { detached: true, ..request(name) };
        if name == "taken" {
            acquire(&world.command(&seen), &detached);
        } else {
            acquire(&world.process(Abandoned::Stays), &detached);
            assert!(block_on(world.command(&seen).inspect(&detached.name)).unwrap().is_locked());
        }
        world.clock.advance(TTL);
        assert!(is_held(&try_acquire(&world.command(&seen), &request(name))), "{name}: too early");
        world.clock.advance(TTL / 20);
        acquire(&world.command(&seen), &request(name));
    }
}

/// One of many leases that is not renewed any more is given up, although the session lives.
#[test]
fn what_its_owner_forgot_is_given_up() {
    let world = World::new();
    let (holder, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let (forgotten, kept) = (request("forgotten"), request("kept"));
    acquire(&holder, &forgotten);
    acquire(&holder, &kept);
    world.keep_alive(&holder, &kept, 4);
    acquire(&other, &request("forgotten"));
    assert!(matches!(renew(&holder, &kept), Renewed::Held(_)));
}

/// F61, contract rule 7: an acquire that was given up and is delivered after its release takes
/// nothing.
#[test]
fn a_late_acquire_finds_nothing_as_it_expects() {
    for name in ["new", "used"] {
        let world = World::new();
        let store = world.process(Abandoned::Stays);
        if name == "used" {
            let before = request(name);
            acquire(&store, &before);
            release(&store, &before);
        }
        let late = request(name);
        world.ledger.fail(Fault::Delay);
        assert!(block_on(store.try_acquire(&late)).unwrap_err().is_unavailable());
        assert!(matches!(release(&store, &late), Released::AlreadyGone(_)));
        assert_eq!(world.ledger.deliver(), 0, "{name}");
        acquire(&store, &request(name));
    }
}

/// A lost answer is no loss: the same lease asks again and has the lock, with the same fence.
#[test]
fn an_acquire_whose_answer_was_lost_is_recognised() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let wish = request("deploy");
    world.ledger.fail(Fault::LoseReply);
    assert!(block_on(store.try_acquire(&wish)).unwrap_err().is_unavailable());
    assert_eq!(acquire(&store, &wish).get(), 1);
    world.ledger.fail(Fault::LoseReply);
    assert!(block_on(store.release(&wish.name, wish.lease)).unwrap_err().is_unavailable());
    assert_eq!(release(&store, &wish), Released::AlreadyGone(Loss::Released));
    assert_eq!(acquire(&store, &request("deploy")).get(), 2);
}

/// An answer that says nothing of what was asked is no grant.
#[test]
fn an_empty_answer_grants_nothing() {
    let world = World::new();
    let (store, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let wish = request("deploy");
    world.ledger.fail(Fault::SayNothing);
    assert!(block_on(store.try_acquire(&wish)).unwrap_err().is_unavailable());
    assert_eq!(acquire(&other, &request("deploy")).get(), 1);
    assert!(is_held(&try_acquire(&store, &wish)));
}

/// Whatever number of locks: one sign of life, and one read to see whether any was broken.
#[test]
fn many_locks_cost_one_sign_of_life() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let held: Vec<_> = (0..50).map(|number| request(&format!("lock-{number}"))).collect();
    for request in &held {
        acquire(&store, request);
    }
    let before = world.ledger.requests();
    let renewal = |request: &Request| Renewal {
        name: request.name.clone(),
        lease: request.lease,
        ttl: TTL,
        bind: Bind::Keep,
    };
    let renewals: Vec<_> = held.iter().map(renewal).collect();
    let renewed = block_on(store.renew(&renewals)).unwrap();
    assert!(renewed.iter().all(|renewed| matches!(renewed, Renewed::Held(_))));
    let after = world.ledger.requests();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
}

/// A lock that an operator broke is noticed with the next sign of life.
#[test]
fn a_broken_lock_is_noticed() {
    let world = World::new();
    let (holder, operator) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let held = request("deploy");
    let fence = acquire(&holder, &held);
    let (by, reason) = (String::from("operator"), String::from("it hangs"));
    let eviction = Eviction { name: held.name.clone(), fence, by, reason };
    block_on(operator.evict(&eviction)).unwrap();
    assert!(matches!(renew(&holder, &held), Renewed::Lost(Loss::Broken { .. })));
}

/// Nothing is left but the free record: no session, no branch.
#[test]
fn a_session_goes_with_its_last_lock() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let (one, two) = (request("one"), request("two"));
    acquire(&store, &one);
    acquire(&store, &two);
    assert_eq!(world.references().len(), 3);
    release(&store, &one);
    assert_eq!(world.references().len(), 3);
    release(&store, &two);
    let locks = [&one, &two].map(|request| RefName::lock(&request.name));
    assert_eq!(world.references(), locks);
}

/// An operator who knows that a holder is dead need not wait.
#[test]
fn an_operator_may_say_that_it_is_dead() {
    let world = World::new();
    let (dead, operator) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let held = request("deploy");
    acquire(&dead, &held);
    world.dies(dead);
    let wish = thief("deploy");
    assert!(is_held(&try_acquire(&operator, &wish)));
    let seen = block_on(operator.silence(&held.name)).unwrap();
    assert!(!seen[&held.lease].stale);
    block_on(operator.assume_dead(&held.name)).unwrap();
    assert!(block_on(operator.silence(&held.name)).unwrap()[&held.lease].stale);
    acquire(&operator, &wish);
}

fn branch(name: &str) -> RefName {
    RefName::new(format!("refs/heads/{name}")).unwrap()
}

fn commit(digit: char) -> Oid {
    Oid::new(digit.to_string().repeat(40)).unwrap()
}

/// A branch comes and goes with the lock, in the same step; one that is there already is a claim.
#[test]
fn a_companion_comes_and_goes_with_the_lock() {
    let world = World::new();
    let (store, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let wish = request("item");
    let companion = Companion { branch: branch("next-item"), before: None, at: commit('a') };
    let by_hand = Change { name: branch("next-item"), old: None, new: New::At(commit('b')) };
    world.ledger.swap(std::slice::from_ref(&by_hand)).unwrap();
    store.accompany(&wish.name, companion);
    match try_acquire(&store, &wish) {
        Attempt::Held(held) => {
            assert!(held.holders[0].holder.worker_id.contains("refs/heads/next-item"));
        }
        other => panic!("the branch was made by hand: {other:?}"),
    }
    assert!(!block_on(store.inspect(&wish.name)).unwrap().is_locked());
    let (name, old) = (by_hand.name, Some(commit('b')));
    world.ledger.swap(&[Change { name, old, new: New::Nowhere }]).unwrap();
    acquire(&store, &wish);
    assert!(world.references().contains(&branch("next-item")));
    assert!(is_held(&try_acquire(&other, &request("item"))));
    release(&store, &wish);
    assert!(!world.references().contains(&branch("next-item")));
}

/// The end of a piece of work is one step: the result is there and the lock is free, or neither.
#[test]
fn a_release_with_other_changes_is_all_or_nothing() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let (wish, main) = (request("item"), branch("main"));
    let to = |old: Option<Oid>, digit| {
        vec![Change { name: main.clone(), old, new: New::At(commit(digit)) }]
    };
    world.ledger.swap(&to(None, 'a')).unwrap();
    acquire(&store, &wish);
    let conclude = |along| block_on(store.release_with(&wish.name, wish.lease, along)).unwrap();
    assert_eq!(conclude(to(Some(commit('c')), 'b')), Concluded::InTheWay(vec![main.clone()]));
    assert!(block_on(store.inspect(&wish.name)).unwrap().is_locked());
    assert_eq!(conclude(to(Some(commit('a')), 'b')), Concluded::Done);
    assert!(!block_on(store.inspect(&wish.name)).unwrap().is_locked());
    assert_eq!(conclude(to(Some(commit('b')), 'c')), Concluded::Lost(Loss::Released));
    let tips = world.ledger.tips(std::slice::from_ref(&main)).unwrap();
    assert_eq!(tips, [Some(commit('b'))]);
}

/// Who lost its lock cannot push its result over its successor's.
#[test]
fn who_was_taken_over_concludes_nothing() {
    let world = World::new();
    let (slow, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let (held, main) = (request("item"), branch("main"));
    acquire(&slow, &held);
    assert!(is_held(&try_acquire(&other, &thief("item"))));
    world.clock.advance(TTL * 2);
    acquire(&other, &thief("item"));
    let along = vec![Change { name: main, old: None, new: New::At(commit('a')) }];
    let concluded = block_on(slow.release_with(&held.name, held.lease, along)).unwrap();
    assert!(matches!(concluded, Concluded::Lost(_)), "{concluded:?}");
    assert!(!world.references().contains(&branch("main")));
}

/// What goes along goes with what was wished for, not with whatever else the record needed.
#[test]
fn nothing_goes_along_with_what_was_not_done() {
    let world = World::new();
    let (holder, operator) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let fixed = Request { fixed: true, ..request("item") };
    let fence = acquire(&holder, &fixed);
    assert!(block_on(operator.inspect(&fixed.name)).unwrap().is_locked());
    // By now the holder is over, so the record changes; but it is not the one that is meant.
    world.clock.advance(TTL * 2);
    let (name, fence) = (fixed.name.clone(), Fence::new(fence.get() + 7).unwrap());
    let (by, reason) = (String::from("operator"), String::from("a slip"));
    let along = vec![Change { name: branch("main"), old: None, new: New::At(commit('a')) }];
    let eviction = Eviction { name, fence, by, reason };
    let concluded = block_on(operator.evict_with(&eviction, along)).unwrap();
    assert!(matches!(concluded, Concluded::Lost(_)), "{concluded:?}");
    assert!(!world.references().contains(&branch("main")));
    assert!(!block_on(operator.inspect(&fixed.name)).unwrap().is_locked());
}

/// What is not a record fails closed, and an absent one is free.
#[test]
fn a_damaged_record_is_not_overwritten() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let wish = request("deploy");
    let entry = Entry { summary: "by hand".into(), body: "{".into() };
    let change = Change { name: RefName::lock(&wish.name), old: None, new: New::Entry(entry) };
    world.ledger.swap(&[change]).unwrap();
    assert!(block_on(store.try_acquire(&wish)).unwrap_err().is_corrupt());
    assert_eq!(world.references().len(), 1);
}

/// Requests that come together are served together.
#[test]
fn a_damaged_record_is_not_in_the_way_of_what_is_asked_with_it() {
    let world = World::new();
    let damaged = RefName::lock(&LockName::new("damaged").unwrap());
    let new = New::Entry(Entry { summary: "damaged".into(), body: "{}".into() });
    world.ledger.swap(&[Change { name: damaged, old: None, new }]).unwrap();
    for _ in 0..100 {
        let store = world.process(Abandoned::Freed);
        let (bad, good) = (request("damaged"), request("good"));
        let both = async { futures::join!(store.try_acquire(&bad), store.try_acquire(&good)) };
        let (refused, granted) = block_on(both);
        assert!(refused.unwrap_err().is_corrupt());
        assert!(matches!(granted.unwrap(), Attempt::Granted(_)));
        block_on(store.release(&good.name, good.lease)).unwrap();
    }
}

/// A note whose answer is lost is written again, and told once.
#[test]
fn a_note_is_told_once_however_often_it_was_written() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let (name, lease) = (LockName::new("deploy").unwrap(), LeaseId::random(&OsEntropy));
    let holder = Holder::new("worker", "here");
    let note = |at_ms| {
        let entry = AuditEntry::new(
            at_ms,
            name.clone(),
            AuditKind::Lost,
            Fence::ZERO,
            lease,
            holder.clone(),
        );
        [entry.detail("its lease expired")]
    };
    for _ in 0..2 {
        world.ledger.fail(Fault::LoseReply);
        assert!(block_on(store.note(&note(5))).unwrap_err().is_unavailable());
    }
    block_on(store.note(&note(5))).unwrap();
    block_on(store.note(&note(6))).unwrap();
    let told = block_on(store.audit(&AuditQuery::default())).unwrap();
    let at: Vec<_> = told.iter().map(|entry| entry.at_unix_ms).collect();
    assert_eq!(at, [5, 6]);
}
