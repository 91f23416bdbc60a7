//! The board of a repository's issues, and how the work on them goes.

use std::time::Duration;

use sprag_core::{AuditQuery, Fence};
use sprag_github::issue_of;

use super::GitHubSource;
use crate::board::{Board, Owner, Row};
use crate::error::Result;
use crate::item::in_order;
use crate::stats::{Counters, Stats, TRAIL};

impl GitHubSource {
    pub(super) fn overview(&self) -> Result<Board> {
        let locks = self.locks()?;
        let mut rows = Vec::new();
        for issue in self.issues()? {
            let holder = locks.get(&issue.number).and_then(|lock| lock.holders.first());
            let owner = match holder {
                None => self.person(&issue)?.map(by_hand),
                Some(holder) => {
                    let silence = self.silence(issue.number, holder)?;
                    Some(Owner {
                        worker: Some(holder.holder.worker_id.clone()),
                        assignee: issue.assignees.first().cloned(),
                        branch: None,
                        fence: holder.fence,
                        since_unix_ms: holder.holder.since_unix_ms,
                        ttl: holder.ttl,
                        silent: silence.map(|silence| silence.seen),
                        detached: holder.detached,
                        stale: silence.is_some_and(|silence| silence.stale),
                    })
                }
            };
            rows.push(Row { item: self.item(&issue)?, owner });
        }
        let mut items: Vec<_> = rows.iter().map(|row: &Row| row.item.clone()).collect();
        in_order(&mut items);
        let rank = |row: &Row| items.iter().position(|item| item.name == row.item.name);
        rows.sort_by_key(rank);
        Ok(Board { rows, odd: Vec::new() })
    }

    pub(super) fn numbers(&self) -> Result<Stats> {
        let mut stats = Stats::of(&self.overview()?);
        let query = AuditQuery { limit: TRAIL, ..AuditQuery::default() };
        let trail = self.wait(self.inner.client.audit(&query))?;
        stats.tell(trail.iter().filter(|entry| issue_of(&entry.name).is_some()));
        Ok(stats.counted(&Counters::read(&self.inner.desk)))
    }
}

/// An issue that a person has.
fn by_hand(assignee: String) -> Owner {
    Owner {
        worker: None,
        branch: None,
        assignee: Some(assignee),
        fence: Fence::ZERO,
        since_unix_ms: None,
        ttl: Duration::ZERO,
        silent: None,
        detached: false,
        stale: false,
    }
}
