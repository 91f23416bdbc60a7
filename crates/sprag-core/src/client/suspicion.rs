//! [`Suspicion`]: a waiter's search for the deadlock it may be part of.

use std::time::Duration;

use super::core::Core;
use super::lease::Lease;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::id::PartyId;
use crate::policy::deadlock::{self, Deadlock};
use crate::record::Expiry;
use crate::store::Listing;
use crate::view::{HolderView, LockView};

/// When a waiter looks first, and about how long it waits to look again, if it may be part of a
/// deadlock. The circle may be closed by somebody who comes much later than the victim.
const FIRST: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(1);
/// The same for one who holds nothing, and where looking takes long.
const SELDOM: Duration = Duration::from_secs(5);
/// How many times as long as a look takes a waiter pauses: of many that look at once, each takes
/// longer, and looks less often.
const SPARING: u32 = 25;
/// How long a circle must last to be believed.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// How long the store may take to list.
const LISTING: Duration = Duration::from_secs(1);
/// How many pages of contended locks are read at most.
const MAX_PAGES: usize = 16;

pub(super) struct Suspicion {
    due: Moment,
}

impl Suspicion {
    pub(super) const fn new(started: Moment) -> Self {
        Self { due: started.plus(FIRST) }
    }

    /// When the next look is due.
    pub(super) const fn due(&self) -> Moment {
        self.due
    }

    /// Looks, if it is time. All members of a deadlock choose the same victim, and only the
    /// victim gets the error; the others can go on once it has let go.
    pub(super) async fn follow(&mut self, core: &Core, lease: &Lease) -> Result<()> {
        let now = core.now();
        if now < self.due {
            return Ok(());
        }
        let jitter = 0.8 + 0.4 * core.entropy.next_fraction();
        self.due = now.plus(SELDOM.mul_f64(jitter));
        // Who holds nothing is in nobody's way, unless others around it hold something. That is
        // most of a crowd, and looking is not cheap.
        if !lease.party.is_inner() && !core.registry.is_party_holding(lease.party) {
            return Ok(());
        }
        // What is seen twice, edge by edge, was there all the time in between: no phantom. The
        // pause lets a release that is on its way arrive.
        let first = find(core, lease.party).await;
        self.due = now.plus(again(core, core.now().since(now)).mul_f64(jitter));
        let Some(first) = first else { return Ok(()) };
        core.sleep(BETWEEN_LOOKS).await;
        let Some(second) = find(core, lease.party).await else { return Ok(()) };
        if !second.confirms(&first) || second.victim != lease.id {
            return Ok(());
        }
        core.telemetry.deadlock();
        let message = format!("deadlock: {second}; this one gave up, the others can go on");
        let error = Error::new(ErrorKind::Deadlock, Operation::Acquire, message);
        Err(error.on(&lease.name).caused_by(second))
    }
}

/// How long to wait after a look that took so long.
fn again(core: &Core, took: Duration) -> Duration {
    match core.store.capability().expiry {
        Expiry::Clock => took.saturating_mul(SPARING).clamp(AGAIN, SELDOM),
        // Such a store is far away, and may allow so many requests only.
        Expiry::Observed => SELDOM,
    }
}

async fn find(core: &Core, party: PartyId) -> Option<Deadlock> {
    let mut views: Vec<LockView> = Vec::new();
    let mut listing = Listing { contended: true, ..Listing::default() };
    for _ in 0..MAX_PAGES {
        let page = core.request(Operation::List, LISTING, core.store.list(&listing)).await.ok()?;
        views.extend(page.locks);
        listing.after = page.next;
        if listing.after.is_none() {
            break;
        }
    }
    // What this task has given away, or is releasing, is not in anybody's way for long.
    let given_up = |hold: &HolderView| hold.party == party && !core.registry.is_holding(hold.lease);
    views.iter_mut().for_each(|view| view.holders.retain(|hold| !given_up(hold)));
    // Then, as what the processes around this one hold would count as given away.
    deadlock::stand_in(&mut views);
    deadlock::find(&views, party)
}
