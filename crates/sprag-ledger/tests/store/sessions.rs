//! What the dead leave behind.

use super::*;

/// What dead processes left goes when they are found dead, by whoever finds them.
#[test]
fn the_sessions_of_the_dead_go_with_what_speaks_of_them() {
    let world = World::new();
    let (dead, living) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let lost = ["deploy", "report"].map(request);
    for request in &lost {
        acquire(&dead, request);
    }
    let session = RefName::session(dead.session());
    world.dies(dead);
    lost.iter()
        .for_each(|lost| assert!(is_held(&try_acquire(&living, &thief(lost.name.as_str())))));
    world.clock.advance(TTL * 2);
    for (at, lost) in lost.iter().enumerate() {
        assert!(world.references().contains(&session), "a lock speaks of it");
        let mine = thief(lost.name.as_str());
        acquire(&living, &mine);
        // Asked after it, and answered after it.
        release(&living, &mine);
        assert_eq!(world.references().contains(&session), at == 0);
    }
    assert_eq!(world.references().len(), 2);
}

/// So does that of a process that died while it waited.
#[test]
fn the_session_of_a_dead_waiter_goes_with_its_place() {
    let world = World::new();
    let [holder, dead, other] = [(); 3].map(|()| world.process(Abandoned::Stays));
    let held = request("deploy");
    acquire(&holder, &held);
    let wish = Request { queue: true, ..request("deploy") };
    assert!(matches!(try_acquire(&dead, &wish), Attempt::Queued(_)));
    let session = RefName::session(dead.session());
    world.dies(dead);
    let wish = Request { queue: true, ..request("deploy") };
    assert!(matches!(try_acquire(&other, &wish), Attempt::Queued(_)));
    for _ in 0..4 {
        world.keep_alive(&holder, &held, 1);
        assert!(matches!(renew(&other, &wish), Renewed::Waiting));
    }
    assert!(matches!(try_acquire(&other, &wish), Attempt::Queued(_)));
    block_on(other.withdraw(&wish.name, wish.lease)).unwrap();
    assert!(!world.references().contains(&session));
}

/// A session that no lock speaks of, because an operator was faster.
#[test]
fn a_session_that_no_lock_speaks_of_is_tidied_up() {
    let world = World::new();
    let (dead, living) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let held = request("deploy");
    let fence = acquire(&dead, &held);
    let session = RefName::session(dead.session());
    world.dies(dead);
    assert_eq!(block_on(living.tidy(TTL)).unwrap(), 0);
    world.clock.advance(TTL / 2);
    let (by, reason) = (String::from("operator"), String::from("it hangs"));
    let eviction = Eviction { name: held.name.clone(), fence, by, reason };
    block_on(living.evict(&eviction)).unwrap();
    assert_eq!(block_on(living.tidy(TTL)).unwrap(), 0, "it may be alive");
    assert!(world.references().contains(&session));
    world.clock.advance(TTL);
    assert_eq!(block_on(living.tidy(TTL)).unwrap(), 1);
    assert_eq!(world.references(), [RefName::lock(&held.name)]);
}

/// A session that cannot be read hides no lock, and protects its locks only as long as it moves.
#[test]
fn a_damaged_session_is_as_silent_as_another() {
    let world = World::new();
    let (dead, other) = (world.process(Abandoned::Stays), world.process(Abandoned::Stays));
    let held = request("deploy");
    acquire(&dead, &held);
    let session = RefName::session(dead.session());
    world.dies(dead);
    let damage = |body: &str| {
        let old = world.ledger.tips(std::slice::from_ref(&session)).unwrap().remove(0);
        let entry = Entry { summary: "?".into(), body: body.into() };
        let change = Change { name: session.clone(), old, new: New::Entry(entry) };
        assert!(matches!(world.ledger.swap(&[change]).unwrap()[..], [Swapped::Done(_)]));
        // What was read before is too old.
        world.clock.advance(Duration::from_millis(1));
    };
    for newer in ["", "{}", r#"{"format":2,"beat":7}"#] {
        damage(newer);
        assert!(is_held(&try_acquire(&other, &thief("deploy"))), "it was seen to move");
        world.clock.advance(TTL / 2);
        assert_eq!(block_on(other.tidy(TTL)).unwrap(), 0);
        assert!(block_on(other.silence(&held.name)).unwrap().contains_key(&held.lease));
    }
    world.clock.advance(TTL * 2);
    let mine = thief("deploy");
    acquire(&other, &mine);
    release(&other, &mine);
    assert_eq!(world.references(), [RefName::lock(&held.name)]);
}
