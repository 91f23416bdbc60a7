//! Random locks, and a second opinion on who can run.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tests::{hold, lock, party, permits};
use super::{Deadlock, find};
use crate::id::PartyId;
use crate::mode::Mode::{self, Exclusive, Permits, Shared, Upgradable};
use crate::view::{HolderView, LockView};

/// Plays the locks to their end: who waits for nothing leaves all its locks, which go to the
/// first in line. Returns who never gets to run.
fn play(mut views: Vec<LockView>) -> BTreeSet<PartyId> {
    loop {
        let waiting = stuck_parties(&views);
        for view in &mut views {
            view.holders.retain(|hold| waiting.contains(&hold.party));
        }
        let Some(lucky) = views.iter_mut().find_map(promote) else {
            return waiting;
        };
        for view in &mut views {
            view.waiters.retain(|wait| wait.party != lucky);
            view.holders.retain(|hold| hold.party != lucky);
        }
    }
}

fn stuck_parties(views: &[LockView]) -> BTreeSet<PartyId> {
    let upgrades = views.iter().flat_map(|view| &view.holders).filter(|hold| hold.upgrading);
    let waiters = views.iter().flat_map(|view| &view.waiters).map(|wait| wait.party);
    waiters.chain(upgrades.map(|hold| hold.party)).collect()
}

/// Who is granted the lock next, if anybody can be.
fn promote(view: &mut LockView) -> Option<PartyId> {
    if let Some(upgrade) = view.holders.iter().find(|hold| hold.upgrading) {
        return (view.holders.len() == 1).then_some(upgrade.party);
    }
    let head = view.waiters.first()?;
    let count = |mode| if let Permits { count, .. } = mode { count } else { 0 };
    let taken: u32 = view.holders.iter().map(|hold| count(hold.mode)).sum();
    let mut modes = view.holders.iter().map(|hold| hold.mode);
    let room = match head.mode {
        Exclusive => view.holders.is_empty(),
        Shared => modes.all(|mode| matches!(mode, Shared | Upgradable)),
        Upgradable => modes.all(|mode| mode == Shared),
        Permits { count, of } => taken + count <= of,
    };
    room.then_some(head.party)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Exclusive), 3 => Just(Shared), 1 => Just(Upgradable)]
}

/// Locks of one kind each, with holders that may be there together.
fn any_lock(index: usize) -> impl Strategy<Value = LockView> {
    let name = ["a", "b", "c", "d", "e"][index];
    let who = || prop::char::range('a', 'g');
    let plain = (
        prop::collection::vec((who(), mode()), 0..4),
        prop::collection::vec((who(), mode()), 0..4),
        any::<bool>(),
    );
    let plain = plain.prop_map(move |(holders, waiters, upgrading)| {
        let mut view = lock(name, &[], &waiters);
        for (n, (who, mode)) in holders.into_iter().enumerate() {
            let mut beside = view.holders.iter().map(|hold: &HolderView| hold.mode);
            let room = match mode {
                Exclusive => view.holders.is_empty(),
                Upgradable => beside.all(|mode| mode == Shared),
                _ => beside.all(|mode| mode != Exclusive),
            };
            if room {
                view.holders.push(hold(name, who, mode, n));
                view.holders.last_mut().unwrap().upgrading = upgrading && mode == Upgradable;
            }
        }
        view
    });
    let count = || (who(), 1_u32..=2).prop_map(|(who, count)| (who, permits(count, 3)));
    let semaphore = (prop::collection::vec(count(), 0..3), prop::collection::vec(count(), 0..4));
    let semaphore = semaphore.prop_map(move |(holders, waiters)| {
        let mut view = lock(name, &holders, &waiters);
        view.holders.truncate(if view.holders.iter().all(|h| h.mode == permits(1, 3)) {
            3
        } else {
            1
        });
        view.limit = Some(3);
        view
    });
    prop_oneof![2 => plain, 1 => semaphore]
}

fn any_views() -> impl Strategy<Value = Vec<LockView>> {
    let locks = (any_lock(0), any_lock(1), any_lock(2), any_lock(3), any_lock(4));
    let vary = prop::collection::vec((-1_i8..=1, 0_u64..3), 40);
    (locks, vary).prop_map(|((a, b, c, d, e), vary)| {
        let mut views = vec![a, b, c, d, e];
        let waiters = views.iter_mut().flat_map(|view| &mut view.waiters);
        for (wait, (priority, arrived)) in waiters.zip(vary) {
            wait.priority = priority;
            wait.arrived_ms = arrived;
        }
        views
    })
}

fn findings(views: &[LockView]) -> Vec<(PartyId, Deadlock)> {
    let parties = ('a'..='g').map(party);
    parties.filter_map(|me| find(views, me).map(|found| (me, found))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn nobody_who_can_run_is_ever_named(views in any_views()) {
        let stuck = play(views.clone());
        for (me, found) in findings(&views) {
            prop_assert!(found.parties().contains(&me));
            prop_assert!(found.parties().is_subset(&stuck), "{} in {:#?}", found, views);
        }
    }

    #[test]
    fn where_somebody_is_stuck_somebody_finds_out(views in any_views()) {
        let stuck = play(views.clone());
        prop_assert_eq!(findings(&views).is_empty(), stuck.is_empty(), "{:#?}", views);
    }

    #[test]
    fn all_members_find_the_same_and_the_victim_is_one_of_them(views in any_views()) {
        for (_, found) in findings(&views) {
            for other in found.parties() {
                prop_assert_eq!(find(&views, other), Some(found.clone()));
            }
            prop_assert!(found.members.iter().any(|edge| edge.waiter == found.victim));
            prop_assert!(found.confirms(&found));
            prop_assert!(found.to_string().contains("waits"), "{}", found);
        }
    }

    /// If each victim gives up its wait, and runs, the others get to run in the end.
    #[test]
    fn giving_up_unties_every_knot(views in any_views()) {
        let mut views = views;
        for _ in 0..40 {
            let Some((_, found)) = findings(&views).into_iter().next() else { break };
            for view in &mut views {
                view.waiters.retain(|wait| wait.lease != found.victim);
                for hold in &mut view.holders {
                    hold.upgrading &= hold.lease != found.victim;
                }
            }
        }
        prop_assert_eq!(play(views), BTreeSet::new());
    }
}
