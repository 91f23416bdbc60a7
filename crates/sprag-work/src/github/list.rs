//! Which issues can be claimed, and why others cannot.

use std::collections::HashMap;

use sprag_core::store::Listing;
use sprag_core::{HolderView, LockView};
use sprag_github::{Issue, issue_of};

use super::rules::has;
use super::{GitHubSource, item_name, lock_name, now};
use crate::error::{Error, Result};
use crate::flow::Place;
use crate::item::{Item, in_order};
use crate::source::{Ready, Skipped, Wanted};

/// The state of issues that there is something to do about.
pub(super) const OPEN: &str = "open";
/// How many holders are looked at each time, to find out who is dead.
const LOOKS: usize = 3;
/// How long what was seen of pull requests is believed, in times of what is believed of locks.
const PULLS: u32 = 6;

impl GitHubSource {
    pub(super) fn sift(&self, wanted: &Wanted) -> Result<Ready> {
        if let Some(state) = wanted.states.first() {
            return Err(Self::no_states(state.as_str()));
        }
        let locks = self.locks()?;
        let mut ready = Ready::default();
        let mut held = Vec::new();
        for issue in self.issues()? {
            let item = self.item(&issue)?;
            if wanted.without.contains(&item.name) || self.is_finished(issue.number) {
                continue;
            }
            if let Some(why) = self.unfit(&issue)? {
                ready.skipped.push(Skipped { item: item.name.to_string(), why });
                continue;
            }
            match locks.get(&issue.number).and_then(|lock| lock.holders.first()) {
                None => ready.items.push(item),
                Some(holder) => held.push((issue.number, item, holder)),
            }
        }
        let looked = self.looked(&held);
        for (number, item, holder) in held {
            if looked.contains(&number) && self.is_silent(number, holder)? {
                ready.items.push(item);
            } else {
                let why = format!("claimed by {}", holder.holder.worker_id);
                ready.skipped.push(Skipped { item: item.name.to_string(), why });
            }
        }
        in_order(&mut ready.items);
        Ok(ready)
    }

    pub(super) fn no_states(state: &str) -> Error {
        let message = format!(
            "{state:?}: issues have no states but labels: choose them by labels \
                               below [work.github] in sprag.toml"
        );
        Error::input(message).next("see what there is", "sprag work ls")
    }

    /// The open issues with all labels of the rules.
    pub(super) fn issues(&self) -> Result<Vec<Issue>> {
        Ok(self.github().list_issues(&self.inner.rules.labels)?)
    }

    pub(super) fn item(&self, issue: &Issue) -> Result<Item> {
        Ok(Item {
            name: item_name(issue.number)?,
            place: Place::plain(OPEN),
            priority: self.inner.rules.priority(&issue.labels),
            left: None,
            order: issue.number,
            since: issue.created_unix(),
        })
    }

    /// The locks of issues that somebody holds, as they were a moment ago.
    pub(super) fn locks(&self) -> Result<HashMap<u64, LockView>> {
        if let Some((at, locks)) = &self.known().locks
            && now().since(*at) < self.inner.spans.status_ttl
        {
            return Ok(locks.clone());
        }
        let at = now();
        let mut listing = Listing { prefix: "issue-".to_owned(), ..Listing::default() };
        let mut locks = HashMap::new();
        loop {
            let page = self.wait(self.inner.client.list(&listing))?;
            let numbered =
                page.locks.into_iter().filter_map(|lock| Some((issue_of(&lock.name)?, lock)));
            locks.extend(numbered);
            listing.after = page.next;
            if listing.after.is_none() {
                break;
            }
        }
        self.known().locks = Some((at, locks.clone()));
        Ok(locks)
    }

    /// Why an issue is not for workers, whoever holds its lock; `None` if it is.
    pub(super) fn unfit(&self, issue: &Issue) -> Result<Option<String>> {
        if issue.closed {
            return Ok(Some("closed".to_owned()));
        }
        if let Some(label) = self.inner.rules.labels.iter().find(|label| !has(&issue.labels, label))
        {
            return Ok(Some(format!("without the label {label}")));
        }
        Ok(self.person(issue)?.map(|person| format!("assigned to {person}")))
    }

    /// The person that an issue is assigned to: whoever is no worker.
    pub(super) fn person(&self, issue: &Issue) -> Result<Option<String>> {
        if issue.assignees.is_empty() {
            return Ok(None);
        }
        let own = self.github().account()?;
        let is_worker = |login: &String| {
            own.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(login))
                || has(&self.inner.rules.accounts, login)
                || login.ends_with("[bot]")
        };
        Ok(issue.assignees.iter().find(|login| !is_worker(login)).cloned())
    }

    /// The open pull requests that would close an issue, as they were not long ago.
    pub(super) fn pulls(&self, number: u64) -> Result<Vec<u64>> {
        if let Some((at, pulls)) = self.known().pulls.get(&number)
            && now().since(*at) < self.inner.spans.status_ttl * PULLS
        {
            return Ok(pulls.clone());
        }
        let (at, pulls) = (now(), self.github().linked_pull_requests(number)?);
        self.known().pulls.insert(number, (at, pulls.clone()));
        Ok(pulls)
    }

    /// Whether this process finished an issue, which lists may still show.
    fn is_finished(&self, number: u64) -> bool {
        let hidden = self.inner.spans.lag + self.inner.spans.status_ttl;
        self.known().finished.get(&number).is_some_and(|at| now().since(*at) < hidden)
    }

    /// Those whose holders it is time to look at: a few, the longest not looked at first.
    fn looked<T>(&self, held: &[(u64, Item, T)]) -> Vec<u64> {
        let mut known = self.known();
        let mut numbers: Vec<_> = held.iter().map(|(number, ..)| *number).collect();
        numbers.sort_by_key(|number| known.looked.get(number).copied());
        numbers.truncate(LOOKS);
        known.looked.extend(numbers.iter().map(|number| (*number, now())));
        numbers
    }

    /// Whether the holder of an issue gave no sign of life for so long that it counts as dead.
    pub(super) fn is_silent(&self, number: u64, holder: &HolderView) -> Result<bool> {
        Ok(self.silence(number, holder)?.is_some_and(|silence| silence.stale))
    }

    pub(super) fn silence(
        &self,
        number: u64,
        holder: &HolderView,
    ) -> Result<Option<sprag_ledger::Silence>> {
        let Some(ledger) = self.inner.store.ledger() else { return Ok(None) };
        let silences = self.wait(ledger.silence(&lock_name(number)?))?;
        Ok(silences.get(&holder.lease).copied())
    }
}
