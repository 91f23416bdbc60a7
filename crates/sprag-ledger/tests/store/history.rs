//! Chains of entries, which begin anew before they are too long.

use super::*;

const CHAIN: u64 = 20;

fn process(world: &World, chain: u64) -> LedgerStore {
    let mut settings = Settings::new("ledger");
    settings.chain = chain;
    world.with(Arc::new(world.ledger.clone()), settings)
}

fn cycle(store: &LedgerStore, name: &str) -> u64 {
    let request = request(name);
    let fence = acquire(store, &request);
    assert_eq!(release(store, &request), Released::Freed);
    fence.get()
}

fn chain(world: &World, name: &str) -> usize {
    let name = RefName::lock(&LockName::new(name).unwrap());
    world.ledger.history(&name, usize::MAX).unwrap().len()
}

#[test]
fn the_history_of_a_lock_is_bounded_and_its_end_is_told() {
    let world = World::new();
    // An older version never begins anew, and goes on where others did.
    let stores = [process(&world, CHAIN), process(&world, CHAIN), process(&world, u64::MAX)];
    let mut longest = 0;
    for number in 1..=200 {
        let store = &stores[number % 3];
        assert_eq!(cycle(store, "deploy"), number as u64, "fences go on by one");
        longest = longest.max(chain(&world, "deploy"));
    }
    assert!((19..=60).contains(&longest), "{longest} entries");
    let told = block_on(stores[0].audit(&AuditQuery::default())).unwrap();
    let fences: Vec<_> = told.iter().map(|entry| (entry.fence.get(), entry.kind)).collect();
    let last = fences.len();
    assert!(last >= 60, "{last} things are told");
    let expected = (0..last as u64).map(|back| {
        let kind = if back % 2 == 0 { AuditKind::Released } else { AuditKind::Acquired };
        (200 - back / 2, kind)
    });
    let mut expected: Vec<_> = expected.collect();
    expected.reverse();
    assert_eq!(fences, expected, "in order, each once, without a gap");
    let mut sequences: Vec<_> = told.iter().map(|entry| entry.sequence).collect();
    sequences.dedup();
    assert!(sequences.len() > 1 && sequences.is_sorted());
}

/// As servers do that take only fast-forwards.
#[test]
fn a_ledger_that_keeps_history_keeps_it() {
    let world = World::new();
    world.ledger.keep_history();
    let store = process(&world, CHAIN);
    for number in 1..=30 {
        assert_eq!(cycle(&store, "deploy"), number);
    }
    assert_eq!(chain(&world, "deploy"), 60);
    assert_eq!(block_on(store.audit(&AuditQuery::default())).unwrap().len(), 60);
    // The signs of life of a long hold, too.
    let held = request("long");
    acquire(&store, &held);
    world.keep_alive(&store, &held, 200);
    assert_eq!(release(&store, &held), Released::Freed);
}

/// F62: what became of the first try of a new beginning is not known; there is one holder, and the
/// fence has grown by one.
#[test]
fn a_new_beginning_whose_answer_is_lost_is_done_once() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Delay] {
        let world = World::new();
        // Each change is a new beginning.
        let (store, other) = (process(&world, 1), process(&world, 1));
        assert_eq!(cycle(&store, "deploy"), 1);
        let held = request("deploy");
        world.ledger.fail(fault);
        assert_eq!(acquire(&store, &held).get(), 2, "{fault:?}");
        assert_eq!(world.ledger.deliver(), 0, "{fault:?}");
        assert!(is_held(&try_acquire(&other, &request("deploy"))), "{fault:?}");
        assert!(matches!(renew(&store, &held), Renewed::Held(_)), "{fault:?}");
        world.ledger.fail(fault);
        let expected = match fault {
            // As it is told to everybody who asks again after a lost answer.
            Fault::LoseReply => Released::AlreadyGone(Loss::Released),
            _ => Released::Freed,
        };
        assert_eq!(release(&store, &held), expected, "{fault:?}");
        assert_eq!(world.ledger.deliver(), 0, "{fault:?}");
        // What the other one has read is too old.
        world.clock.advance(Duration::from_millis(1));
        assert_eq!(cycle(&other, "deploy"), 3, "{fault:?}");
    }
}

/// Two who begin anew at once, from the same entry: one does.
#[test]
fn of_two_new_beginnings_one_counts() {
    let world = World::new();
    let stores = [process(&world, 1), process(&world, 1)];
    assert_eq!(cycle(&stores[0], "deploy"), 1);
    assert!(!is_held(&try_acquire(&stores[1], &request("other"))));
    for round in 2..30 {
        let wishes = [request("deploy"), request("deploy")];
        let attempts: Vec<_> = std::thread::scope(|scope| {
            let ask = |(store, wish)| scope.spawn(move || try_acquire(store, wish));
            let asked: Vec<_> = stores.iter().zip(&wishes).map(ask).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        let granted = |attempt: &Attempt| match attempt {
            Attempt::Granted(grant) => Some(grant.fence.get()),
            _ => None,
        };
        let fences: Vec<_> = attempts.iter().filter_map(granted).collect();
        assert_eq!(fences, [round]);
        let winner = attempts.iter().position(|attempt| granted(attempt).is_some()).unwrap();
        assert_eq!(release(&stores[winner], &wishes[winner]), Released::Freed);
    }
}

/// A process that gives signs of life for a week leaves no week of them.
#[test]
fn the_signs_of_life_of_a_session_are_bounded() {
    let world = World::new();
    let store = world.process(Abandoned::Stays);
    let held = request("deploy");
    acquire(&store, &held);
    world.keep_alive(&store, &held, 300);
    let name = RefName::session(store.session());
    let signs = world.ledger.history(&name, usize::MAX).unwrap();
    assert!((1..=64).contains(&signs.len()), "{} signs of life", signs.len());
}
