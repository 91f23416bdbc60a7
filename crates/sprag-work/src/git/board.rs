//! The board of a repository's items.

use std::collections::HashMap;
use std::time::Duration;

use sprag_core::store::Listing;
use sprag_core::{Fence, HolderView, LockView};

use super::list::Listed;
use super::{GitSource, wait};
use crate::board::{Board, Owner, Row};
use crate::error::Result;
use crate::item::Item;
use crate::name::{ItemName, LOCKS};

impl GitSource {
    /// All items, and who works on them.
    ///
    /// # Errors
    ///
    /// If the remote cannot be read.
    pub fn board(&self) -> Result<Board> {
        let listed = self.list()?;
        let locks = self.locks()?;
        let mut rows: Vec<Row> = listed
            .items
            .iter()
            .map(|item| Row { item: item.clone(), owner: self.owner_of(item, &listed, &locks) })
            .collect();
        let states: Vec<_> = self.flow.states().collect();
        let rank = |row: &Row| states.iter().position(|state| **state == row.item.place.state);
        rows.sort_by_key(|row| rank(row).unwrap_or(usize::MAX));
        Ok(Board { rows, odd: listed.odd })
    }

    /// The locks of items that are held.
    pub(crate) fn locks(&self) -> Result<HashMap<ItemName, LockView>> {
        let mut listing = Listing { prefix: LOCKS.to_owned(), ..Listing::default() };
        let mut locks = HashMap::new();
        loop {
            let page = wait(self.client.list(&listing))?;
            for lock in page.locks {
                if let Some(item) = ItemName::of_lock(&lock.name) {
                    locks.insert(item, lock);
                }
            }
            listing.after = page.next;
            if listing.after.is_none() {
                return Ok(locks);
            }
        }
    }

    fn owner_of(
        &self,
        item: &Item,
        listed: &Listed,
        locks: &HashMap<ItemName, LockView>,
    ) -> Option<Owner> {
        let branch = self.claims(&listed.remote, &item.name).first().map(|name| (*name).to_owned());
        let Some(holder) = locks.get(&item.name).and_then(|lock| lock.holders.first()) else {
            let by_hand = |branch| Owner {
                worker: None,
                branch: Some(branch),
                assignee: None,
                fence: Fence::ZERO,
                since_unix_ms: None,
                ttl: Duration::ZERO,
                silent: None,
                detached: false,
                stale: false,
            };
            // Only where nobody can work any more, a name may be met again.
            return branch.filter(|_| !self.flow.is_last(&item.place.state)).map(by_hand);
        };
        let (silent, stale) = self.silence(&item.name, holder);
        Some(Owner {
            worker: Some(holder.holder.worker_id.clone()),
            branch,
            assignee: None,
            fence: holder.fence,
            since_unix_ms: holder.holder.since_unix_ms,
            ttl: holder.ttl,
            silent,
            detached: holder.detached,
            stale,
        })
    }

    /// How long a holder was seen without a sign of life, and whether that is too long.
    pub(crate) fn silence(&self, item: &ItemName, holder: &HolderView) -> (Option<Duration>, bool) {
        let seen = wait(self.store.silence(&item.lock())).unwrap_or_default();
        seen.get(&holder.lease).map_or((None, false), |seen| (Some(seen.seen), seen.stale))
    }
}
