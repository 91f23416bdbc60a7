//! [`stand_in`]: who waits inside of a holder, waits for it.

use std::collections::BTreeSet;

use super::search::waiting_parties;
use crate::id::PartyId;
use crate::mode::Mode;
use crate::view::{HolderView, LockView};

/// Puts those who wait [inside](PartyId::is_around) of a holder in its place: it will not let go
/// before they have got what they wait for.
///
/// This makes no phantom. A process does not release while its command runs, unless it loses the
/// lock; and a lease that is lost does not come back, so the second look does not
/// [confirm](super::Deadlock::confirms) the first. Who is beside the waiter, inside of the same
/// holder, is not touched: it can go on, and what it holds will be free. What cannot be seen is a
/// process that ends without waiting for a command that it left in the background.
pub fn stand_in(views: &mut [LockView]) {
    let waiting: BTreeSet<PartyId> = views.iter().flat_map(waiting_parties).collect();
    for view in views {
        view.holders = view.holders.drain(..).flat_map(|hold| split(hold, &waiting)).collect();
    }
}

/// The holder, once for each who waits as it or inside of it: if one of them is stuck, so is it.
fn split(hold: HolderView, waiting: &BTreeSet<PartyId>) -> Vec<HolderView> {
    // Permits must not be counted twice, so one stands for all.
    let most = if matches!(hold.mode, Mode::Permits { .. }) { 1 } else { usize::MAX };
    let inside = waiting.range(hold.party.and_inside()).take(most);
    let mut holds: Vec<HolderView> =
        inside.map(|party| HolderView { party: *party, ..hold.clone() }).collect();
    // An upgrade is a wait of the holder's own.
    if holds.is_empty() || hold.upgrading {
        holds = vec![hold];
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lock, permits};
    use super::super::{Deadlock, find};
    use super::stand_in;
    use crate::id::PartyId;
    use crate::mode::Mode::{self, Exclusive};
    use crate::view::LockView;

    /// `A` has `a` and `b` inside, `B` has `c`; other letters are on their own.
    fn party(letter: char) -> PartyId {
        let inside = |outer: u128, step: u128| outer << 80 | step << 60;
        PartyId::from_u128(match letter {
            'A' => inside(1, 0),
            'a' => inside(1, 1),
            'b' => inside(1, 2),
            'B' => inside(2, 0),
            'c' => inside(2, 1),
            letter => letter.into(),
        })
    }

    /// Locks as name, holder and waiters.
    fn views(locks: &[(&str, char, &str)]) -> Vec<LockView> {
        let mode = |letter| (letter, Exclusive);
        let view = |(name, holder, waiters): &(&str, char, &str)| {
            let waiting: Vec<(char, Mode)> = waiters.chars().map(mode).collect();
            let mut view = lock(name, &[mode(*holder)], &waiting);
            view.holders[0].party = party(*holder);
            for (waiter, letter) in view.waiters.iter_mut().zip(waiters.chars()) {
                waiter.party = party(letter);
            }
            view
        };
        let mut views: Vec<_> = locks.iter().map(view).collect();
        stand_in(&mut views);
        views
    }

    fn found(locks: &[(&str, char, &str)], me: char) -> Option<Deadlock> {
        find(&views(locks), party(me))
    }

    #[test]
    fn a_circle_through_outer_holders_is_found_by_the_inner_waiters_with_the_same_victim() {
        let locks = [("x", 'A', "c"), ("y", 'B', "a")];
        let (one, two) = (found(&locks, 'a').unwrap(), found(&locks, 'c').unwrap());
        assert_eq!((one.members.len(), one.victim), (2, two.victim));
        assert!(two.confirms(&one));
        let mixed = [("x", 'A', "r"), ("y", 'r', "a")];
        assert_eq!(found(&mixed, 'a').unwrap().victim, found(&mixed, 'r').unwrap().victim);
    }

    #[test]
    fn what_is_held_beside_the_waiter_is_not_stuck() {
        // b can go on, then r gets x, and then a gets z.
        let locks = [("x", 'b', "r"), ("z", 'r', "a"), ("l", 'A', "s")];
        for me in ['a', 'r', 's'] {
            assert_eq!(found(&locks, me), None, "{me}");
        }
        // a waits for b alone.
        assert_eq!(found(&[("x", 'b', "a"), ("l", 'A', "s")], 'a'), None);
    }

    #[test]
    fn one_stuck_waiter_of_two_is_enough() {
        let locks = [("l", 'A', "r"), ("z", 'r', "b"), ("o", 's', "a")];
        assert!(found(&locks, 'b').is_some() && found(&locks, 'r').is_some());
        assert_eq!(found(&locks, 'a'), None);
    }

    #[test]
    fn who_waits_itself_is_stuck_too() {
        let locks = [("l", 'A', "r"), ("z", 'r', "A"), ("o", 's', "a")];
        assert!(found(&locks, 'A').is_some() && found(&locks, 'r').is_some());
    }

    #[test]
    fn permits_are_not_counted_twice() {
        let mut views = views(&[("o", 's', "ab")]);
        let mut gpu = lock("g", &[('x', permits(1, 2))], &[]);
        gpu.holders[0].party = party('A');
        views.push(gpu);
        stand_in(&mut views);
        assert_eq!(views[1].holders.len(), 1);
        assert_eq!(views[1].holders[0].party, party('a'));
    }
}
