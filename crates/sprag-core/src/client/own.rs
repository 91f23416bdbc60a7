//! Whether somebody who asks for a lock would wait for what they hold themselves.

use crate::mode::Mode;
use crate::record::NAMED_HOLDERS;
use crate::view::HolderView;

/// Whether waiting is hopeless for one who asks for `asked` beside `holders`, of which some are
/// `mine`. Very many holders are not all named, and then others may be in the way.
pub(super) fn waits_for_itself(
    asked: Mode,
    holders: &[HolderView],
    mine: impl Fn(&HolderView) -> bool,
) -> bool {
    if let Mode::Permits { count, of } = asked {
        let own: u64 = holders.iter().filter(|hold| mine(hold)).map(permits_of).sum();
        let all_mine = !holders.is_empty() && holders.iter().all(&mine);
        // Any permit will do: only if the others cannot free enough of them it is hopeless, or if
        // one who is ahead waits for ours.
        return own + u64::from(count) > u64::from(of)
            || (all_mine && holders.len() < NAMED_HOLDERS);
    }
    let in_the_way = |hold: &HolderView| !stands_beside(hold.mode, asked);
    if holders.iter().any(in_the_way) {
        holders.iter().any(|hold| in_the_way(hold) && mine(hold))
    } else {
        // One who is ahead waits for ours.
        holders.iter().any(mine)
    }
}

fn permits_of(hold: &HolderView) -> u64 {
    match hold.mode {
        Mode::Permits { count, .. } => u64::from(count),
        _ => 0,
    }
}

const fn stands_beside(held: Mode, asked: Mode) -> bool {
    matches!(
        (held, asked),
        (Mode::Shared, Mode::Shared | Mode::Upgradable) | (Mode::Upgradable, Mode::Shared)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fence, Holder, LeaseId, PartyId};
    use std::time::Duration;

    const ME: PartyId = PartyId::from_u128(1);
    const OTHER: PartyId = PartyId::from_u128(2);

    fn holds(party: PartyId, mode: Mode) -> HolderView {
        HolderView {
            lease: LeaseId::from_u128(1),
            party,
            mode,
            fence: Fence::ZERO,
            holder: Holder::default(),
            ttl: Duration::ZERO,
            remaining: None,
            upgrading: false,
            detached: false,
        }
    }

    fn hopeless(asked: Mode, holders: &[HolderView]) -> bool {
        waits_for_itself(asked, holders, |hold| hold.party == ME)
    }

    #[test]
    fn permits_of_others_are_worth_waiting_for() {
        let permits = |count| Mode::Permits { count, of: 10 };
        // Eight are named, and the two that somebody else has are not.
        let eight = vec![holds(ME, permits(1)); NAMED_HOLDERS];
        assert!(!hopeless(permits(1), &eight));
        assert!(!hopeless(permits(2), &eight));
        assert!(hopeless(permits(3), &eight));
        let shared = [holds(ME, permits(5)), holds(OTHER, permits(5))];
        assert!(!hopeless(permits(5), &shared));
        assert!(hopeless(permits(6), &shared));
        // Somebody ahead waits for more than there is left.
        assert!(hopeless(permits(1), &[holds(ME, permits(9))]));
        assert!(!hopeless(permits(1), &[holds(OTHER, permits(10))]));
    }

    #[test]
    fn only_what_is_in_the_way_counts() {
        use Mode::{Exclusive, Shared, Upgradable};
        let reading = holds(ME, Shared);
        assert!(!hopeless(Upgradable, &[reading.clone(), holds(OTHER, Upgradable)]));
        assert!(hopeless(Upgradable, &[holds(ME, Upgradable), holds(OTHER, Shared)]));
        assert!(hopeless(Exclusive, &[reading.clone(), holds(OTHER, Shared)]));
        // A writer is ahead in the queue, and waits for the reader that asks.
        assert!(hopeless(Shared, &[reading, holds(OTHER, Shared)]));
        assert!(!hopeless(Exclusive, &[holds(OTHER, Exclusive)]));
    }
}
