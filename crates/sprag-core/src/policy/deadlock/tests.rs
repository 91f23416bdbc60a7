//! Circles that must be found, and chains that must not.

use std::collections::BTreeSet;
use std::time::Duration;

use super::find;
use crate::fence::Fence;
use crate::holder::Holder;
use crate::id::{LeaseId, PartyId};
use crate::mode::Mode::{self, Exclusive, Permits, Shared, Upgradable};
use crate::name::LockName;
use crate::view::{HolderView, LockView, WaiterView};

pub(super) fn party(letter: char) -> PartyId {
    PartyId::from_u128(u128::from(letter))
}

/// One lease per lock, party and role; a second role of the same kind gets the next number.
fn lease(lock: &str, letter: char, number: usize) -> LeaseId {
    let lock = u128::from(lock.as_bytes()[0]);
    LeaseId::from_u128((lock << 64) | (u128::from(letter) << 32) | number as u128)
}

pub(super) fn hold(lock: &str, letter: char, mode: Mode, number: usize) -> HolderView {
    HolderView {
        lease: lease(lock, letter, number),
        party: party(letter),
        mode,
        fence: Fence::new(number as u64 + 1).unwrap(),
        holder: Holder::new(format!("worker-{letter}"), "node"),
        ttl: Duration::from_secs(30),
        remaining: Some(Duration::from_secs(20)),
        upgrading: false,
        detached: false,
    }
}

fn wait(lock: &str, letter: char, mode: Mode, number: usize) -> WaiterView {
    WaiterView {
        lease: lease(lock, letter, 100 + number),
        party: party(letter),
        mode,
        holder: Holder::new(format!("worker-{letter}"), "node"),
        priority: 0,
        ticket: number as u64,
        waiting: Duration::from_secs(10),
        arrived_ms: 20_000,
    }
}

/// A lock with its holders and its queue, as (party, mode).
pub(super) fn lock(name: &str, holders: &[(char, Mode)], waiters: &[(char, Mode)]) -> LockView {
    let holders = holders.iter().enumerate();
    let waiters = waiters.iter().enumerate();
    LockView {
        holders: holders.map(|(n, (who, mode))| hold(name, *who, *mode, n)).collect(),
        waiters: waiters.map(|(n, (who, mode))| wait(name, *who, *mode, n)).collect(),
        ..LockView::free(LockName::new(name).unwrap())
    }
}

pub(super) fn permits(count: u32, of: u32) -> Mode {
    Permits { count, of }
}

/// The parties of the deadlock that `me` finds.
fn circle(views: &[LockView], me: char) -> Option<String> {
    let letter = |party: PartyId| u32::try_from(party.as_u128()).ok().and_then(char::from_u32);
    find(views, party(me)).map(|found| found.parties().into_iter().filter_map(letter).collect())
}

fn two() -> Vec<LockView> {
    vec![
        lock("a", &[('a', Exclusive)], &[('b', Exclusive)]),
        lock("b", &[('b', Exclusive)], &[('a', Exclusive)]),
    ]
}

fn victim_of(views: &[LockView]) -> LeaseId {
    find(views, party('a')).unwrap().victim
}

#[test]
fn two_who_wait_for_each_other() {
    assert_eq!(circle(&two(), 'a').as_deref(), Some("ab"));
    assert_eq!(circle(&two(), 'b').as_deref(), Some("ab"));
}

#[test]
fn a_circle_is_told_to_people() {
    let mut views = two();
    views[1].waiters[0].arrived_ms += 9000;
    let found = find(&views, party('b')).unwrap();
    let told = "worker-a waits for \"b\" held by worker-b, who waits for \"a\" held by worker-a";
    assert_eq!(found.to_string(), told);
}

#[test]
fn three_in_a_circle() {
    let views = [
        lock("a", &[('a', Exclusive)], &[('c', Exclusive)]),
        lock("b", &[('b', Exclusive)], &[('a', Exclusive)]),
        lock("c", &[('c', Exclusive)], &[('b', Exclusive)]),
    ];
    for me in ['a', 'b', 'c'] {
        assert_eq!(circle(&views, me).as_deref(), Some("abc"));
    }
}

#[test]
fn who_waits_for_its_own_lock_waits_for_ever() {
    for (held, asked) in
        [(Exclusive, Exclusive), (Exclusive, Shared), (Shared, Exclusive), (Upgradable, Upgradable)]
    {
        let views = [lock("x", &[('a', held)], &[('a', asked)])];
        let found = find(&views, party('a')).unwrap();
        assert_eq!(found.victim, views[0].waiters[0].lease);
        assert_eq!(found.to_string(), "worker-a waits for \"x\" held by itself");
    }
}

#[test]
fn a_second_read_of_ones_own_lock_is_no_circle() {
    let views = [lock("x", &[('a', Shared)], &[('a', Shared)])];
    assert_eq!(circle(&views, 'a'), None);
}

#[test]
fn a_chain_is_not_a_circle() {
    let views = [
        lock("a", &[('a', Exclusive)], &[('b', Exclusive), ('c', Exclusive)]),
        lock("b", &[('b', Exclusive)], &[('c', Exclusive), ('d', Exclusive)]),
        lock("d", &[('d', Exclusive)], &[('e', Exclusive)]),
    ];
    for me in ['a', 'b', 'c', 'd', 'e'] {
        assert_eq!(circle(&views, me), None);
    }
}

#[test]
fn who_waits_behind_a_circle_is_not_part_of_it() {
    let mut views = two();
    views[0].waiters.push(wait("a", 'c', Exclusive, 1));
    views.push(lock("c", &[('c', Exclusive)], &[('d', Exclusive)]));
    assert_eq!(circle(&views, 'c'), None);
    assert_eq!(circle(&views, 'd'), None);
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
}

/// It is ahead of a member in the queue, but the member is kept out by the holder anyway: if it
/// gave up, nothing would be gained.
#[test]
fn who_waits_ahead_of_a_circle_is_not_part_of_it_either() {
    let mut views = two();
    views[0].waiters.insert(0, wait("a", 'c', Exclusive, 9));
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
    assert_eq!(circle(&views, 'c'), None);
}

#[test]
fn a_writer_waits_for_every_reader() {
    // b reads x and waits for y; a holds y and wants to write x, where c reads too.
    let views = [
        lock("x", &[('b', Shared), ('c', Shared)], &[('a', Exclusive)]),
        lock("y", &[('a', Exclusive)], &[('b', Shared)]),
    ];
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
}

#[test]
fn readers_of_each_other_do_not_wait() {
    let views = [
        lock("x", &[('a', Shared)], &[('b', Shared)]),
        lock("y", &[('b', Shared)], &[('a', Shared)]),
    ];
    assert_eq!(circle(&views, 'a'), None);
}

#[test]
fn a_reader_behind_a_writer_behind_its_own_read_lock() {
    let views = [lock("x", &[('a', Shared)], &[('b', Exclusive), ('a', Shared)])];
    let found = find(&views, party('b')).unwrap();
    assert_eq!(found.parties(), BTreeSet::from([party('a'), party('b')]));
    let reader = found.members.iter().find(|edge| edge.party == party('a')).unwrap();
    assert_eq!(reader.blocked_by[0].lease, views[0].waiters[0].lease);
    assert_eq!(reader.blocked_by[0].fence, None);
    let told = "worker-b waits for \"x\" held by worker-a, who waits for \"x\" behind worker-b";
    let other = "worker-a waits for \"x\" behind worker-b, who waits for \"x\" held by worker-a";
    assert!([told, other].contains(&found.to_string().as_str()), "{found}");
}

#[test]
fn a_reader_ahead_of_the_writer_is_no_circle() {
    let views = [lock("x", &[('a', Shared)], &[('a', Shared), ('b', Exclusive)])];
    assert_eq!(circle(&views, 'a'), None);
}

#[test]
fn an_upgrade_waits_for_the_readers_and_they_may_wait_for_it() {
    let mut x = lock("x", &[('a', Upgradable), ('b', Shared)], &[]);
    x.holders[0].upgrading = true;
    assert_eq!(circle(&[x.clone()], 'a'), None, "the reader can leave");

    let views = [x, lock("y", &[('a', Exclusive)], &[('b', Exclusive)])];
    let found = find(&views, party('a')).unwrap();
    assert_eq!(found.parties().len(), 2);
    // The upgrade would lose the most, so the other one gives up.
    assert_eq!(found.victim, views[1].waiters[0].lease);
    let told =
        "worker-b waits for \"y\" held by worker-a, who waits to upgrade \"x\" held by worker-b";
    assert_eq!(found.to_string(), told);
}

#[test]
fn a_reader_waits_for_a_pending_upgrade() {
    let mut x = lock("x", &[('a', Upgradable), ('b', Shared)], &[('b', Shared)]);
    x.holders[0].upgrading = true;
    assert_eq!(circle(&[x.clone()], 'b').as_deref(), Some("ab"));
    x.holders[0].upgrading = false;
    assert_eq!(circle(&[x], 'b'), None);
}

#[test]
fn two_pending_upgrades_are_an_upgrade_victim() {
    // No store grants this; if one did, somebody has to give way.
    let mut x = lock("x", &[('a', Shared), ('b', Shared)], &[]);
    x.holders[0].upgrading = true;
    x.holders[1].upgrading = true;
    assert_eq!(find(&[x.clone()], party('a')).unwrap().victim, x.holders[1].lease);
}

#[test]
fn one_permit_that_can_come_back_is_enough() {
    let one = permits(1, 2);
    let views = [
        lock("s", &[('b', one), ('c', one)], &[('a', one)]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive)]),
    ];
    assert_eq!(circle(&views, 'a'), None, "c can run");
}

#[test]
fn permits_that_cannot_come_back_are_a_knot() {
    let one = permits(1, 2);
    let views = [
        lock("s", &[('b', one), ('c', one)], &[('a', one)]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive), ('c', Exclusive)]),
    ];
    assert_eq!(circle(&views, 'a').as_deref(), Some("abc"));
    // Two are asked for and only one can come back.
    let views = [
        lock("s", &[('b', one), ('c', one)], &[('a', permits(2, 2))]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive)]),
    ];
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
}

#[test]
fn a_larger_semaphore_has_room() {
    let one = permits(1, 2);
    let mut views = vec![
        lock("s", &[('b', one), ('c', one)], &[('a', one)]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive), ('c', Exclusive)]),
    ];
    views[0].limit = Some(3);
    assert_eq!(circle(&views, 'a'), None);
}

#[test]
fn a_large_wish_ahead_keeps_small_ones_back() {
    // b holds 1 of 3, a asks for 3, and b for one more behind a.
    let views = [lock("s", &[('b', permits(1, 3))], &[('a', permits(3, 3)), ('b', permits(1, 3))])];
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
}

/// a waits for a permit of b or c. b waits for a; c sits in another circle with d. As soon as
/// those have solved theirs, c gives back its permit: a and b need not give up anything.
#[test]
fn a_knot_that_others_will_untie_is_left_alone() {
    let one = permits(1, 2);
    let views = [
        lock("s", &[('b', one), ('c', one)], &[('a', one)]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive)]),
        lock("y", &[('c', Exclusive)], &[('d', Exclusive)]),
        lock("z", &[('d', Exclusive)], &[('c', Exclusive)]),
    ];
    assert_eq!(circle(&views, 'a'), None);
    assert_eq!(circle(&views, 'b'), None);
    assert_eq!(circle(&views, 'c').as_deref(), Some("cd"));
    assert_eq!(circle(&views, 'd').as_deref(), Some("cd"));
}

#[test]
fn who_waits_for_two_locks_needs_only_one() {
    let mut views = two();
    views.push(lock("c", &[('c', Exclusive)], &[('a', Exclusive)]));
    assert_eq!(circle(&views, 'a'), None);
    // Now the way out is closed as well.
    views.push(lock("d", &[('a', Exclusive)], &[('c', Exclusive)]));
    assert_eq!(circle(&views, 'a').as_deref(), Some("abc"));
}

/// Waiting twice for one lock, one wait behind the other, is not a circle by itself.
#[test]
fn two_waits_of_one_party_for_one_lock() {
    let views = [lock("x", &[('b', Shared)], &[('a', Exclusive), ('a', Shared)])];
    assert_eq!(circle(&views, 'a'), None);
    let mut stuck = two();
    stuck.push(lock("c", &[('b', Shared)], &[('c', Exclusive), ('c', Shared)]));
    assert_eq!(circle(&stuck, 'c'), None);
}

#[test]
fn an_expired_holder_is_in_nobodys_way() {
    let mut views = two();
    views[0].holders[0].remaining = Some(Duration::ZERO);
    assert_eq!(circle(&views, 'a'), None);
    views[0].holders[0].remaining = None;
    assert_eq!(circle(&views, 'a').as_deref(), Some("ab"));
}

#[test]
fn who_does_not_wait_is_in_no_deadlock() {
    assert_eq!(circle(&two(), 'c'), None);
    assert_eq!(circle(&[], 'a'), None);
}

#[test]
fn the_victim_is_the_least_urgent_then_the_youngest_then_the_largest_lease() {
    let mut views = two();
    assert_eq!(victim_of(&views), views[1].waiters[0].lease, "the largest lease");
    views[0].waiters[0].arrived_ms += 1;
    assert_eq!(victim_of(&views), views[0].waiters[0].lease, "the youngest");
    // Each lock is looked at in its turn, so that one seems to have waited for longer.
    views[0].waiters[0].waiting += Duration::from_millis(3);
    assert_eq!(victim_of(&views), views[0].waiters[0].lease, "whoever looks when");
    views[1].waiters[0].priority = -1;
    assert_eq!(victim_of(&views), views[1].waiters[0].lease, "the least urgent");
}

#[test]
fn the_shortest_circle_is_told_and_the_rest_counted() {
    let one = permits(1, 2);
    let views = [
        lock("s", &[('b', one), ('c', one)], &[('a', one)]),
        lock("x", &[('a', Exclusive)], &[('b', Exclusive), ('c', Exclusive)]),
    ];
    let told = find(&views, party('a')).unwrap().to_string();
    assert!(told.ends_with(" (and 1 more)") && told.matches("waits for").count() == 2, "{told}");
}

#[test]
fn the_same_circle_seen_again_is_confirmed() {
    let first = find(&two(), party('a')).unwrap();
    let mut later = two();
    later[0].waiters[0].waiting = Duration::from_secs(15);
    later[0].waiters.push(wait("a", 'c', Exclusive, 1));
    assert!(find(&later, party('a')).unwrap().confirms(&first));
}

#[test]
fn a_circle_that_grew_confirms_the_smaller_one_but_not_the_other_way_round() {
    let reads = |waiters: &[(char, Mode)]| {
        vec![
            lock("x", &[('b', Shared), ('c', Shared)], &[('a', Exclusive)]),
            lock("y", &[('a', Exclusive)], waiters),
        ]
    };
    let small = find(&reads(&[('b', Shared)]), party('a')).unwrap();
    let large = find(&reads(&[('b', Shared), ('c', Shared)]), party('a')).unwrap();
    assert!(large.confirms(&small) && !small.confirms(&large));
}

/// Each change means that somebody moved between the two looks: a phantom.
#[test]
fn a_circle_that_changed_in_between_is_not_confirmed() {
    let first = find(&two(), party('a')).unwrap();
    let changes: [fn(&mut Vec<LockView>); 3] = [
        |views| views[0].waiters[0].lease = LeaseId::from_u128(7),
        |views| views[0].holders[0].fence = Fence::MAX,
        |views| views[0].holders[0].lease = LeaseId::from_u128(7),
    ];
    for change in changes {
        let mut later = two();
        change(&mut later);
        assert!(!find(&later, party('a')).unwrap().confirms(&first));
    }
}
