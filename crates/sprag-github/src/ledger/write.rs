//! Writing commits and moving refs.

use serde::Deserialize;
use serde_json::json;
use sprag_core::{ErrorKind, Result};
use sprag_ledger::{Change, Entry, New, Oid, RefName, Swapped};

use super::message::Message;
use super::refs::{inner, oid};
use super::{GitHubLedger, ReadBack, in_doubt, nothing_done};
use crate::api::Trouble;
use crate::call::{Call, Cost, Urgency};
use crate::error::error;

/// The tree without files, which every git knows.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
/// What GraphQL takes for a ref that is not there.
const NOWHERE: &str = "0000000000000000000000000000000000000000";
/// How often a commit is written anew if nobody answered; only the last one is used.
const TRIES: usize = 2;

#[derive(Deserialize)]
struct Made {
    sha: String,
}

impl GitHubLedger {
    /// Swaps one ref: two requests.
    pub(super) fn swap_one(&self, change: &Change, urgency: Urgency) -> Result<Swapped> {
        let Change { name, old, .. } = change;
        let mine = self.target(change, Vec::new(), urgency)?;
        let Some(mine) = mine else {
            return Err(error(
                ErrorKind::BadInput,
                format!("{name} is not swapped to nowhere alone"),
            ));
        };
        let (call, refused) = match old {
            None => {
                let body = json!({ "ref": name.as_str(), "sha": mine.as_str() });
                let call = Call::post(format!("{}/git/refs", self.api.repository), body);
                (call, "Reference already exists")
            }
            Some(_) => {
                let body = json!({ "sha": mine.as_str(), "force": false });
                let path = format!("{}/git/refs/{}", self.api.repository, inner(name));
                (Call::patch(path, body), "fast forward")
            }
        };
        let call = call.urgent(urgency);
        let answer = match self.api.ask(&call) {
            Ok(answer) => answer,
            Err(trouble) if nothing_done(&trouble) => return Err(trouble.into()),
            Err(trouble) => return self.settle(change, &mine, Some(trouble)),
        };
        let said = answer.message();
        match answer.status {
            200..=299 => Ok(Swapped::Done(Some(mine))),
            // Moving it again to where it is would have been fine, so it is not ours.
            422 if old.is_some() && said.contains(refused) => Ok(Swapped::Refused),
            422 if old.is_some() && said.contains("does not exist") => self.is_gone(change, &mine),
            // Whether it exists as ours, because somebody on the way sent it twice, has to be seen.
            409 | 422 if !said.contains("empty") => self.settle(change, &mine, None),
            404 if old.is_some() => self.is_gone(change, &mine),
            _ => Err(self.api.refusal(&call, &answer)),
        }
    }

    /// A ref that was there when it was read is gone, and so is what could have been swapped.
    fn is_gone(&self, change: &Change, mine: &Oid) -> Result<Swapped> {
        match self.tip(&change.name)? {
            None => Ok(Swapped::Refused),
            Some(_) => self.settle(change, mine, None),
        }
    }

    fn settle(&self, change: &Change, mine: &Oid, trouble: Option<Trouble>) -> Result<Swapped> {
        match self.read_back(&change.name, change.old.as_ref(), Some(mine)) {
            ReadBack::Done => Ok(Swapped::Done(Some(mine.clone()))),
            ReadBack::Refused => Ok(Swapped::Refused),
            ReadBack::Unknown => Err(in_doubt(&change.name, trouble.map(Into::into))),
        }
    }

    /// Swaps several refs, or deletes some: all or none.
    pub(super) fn swap_all(&self, changes: &[Change], urgency: Urgency) -> Result<Vec<Swapped>> {
        let repository = self.repository_id(urgency)?.to_owned();
        let targets = self.targets(changes, urgency)?;
        let updates: Vec<_> = changes
            .iter()
            .zip(&targets)
            .map(|(change, target)| {
                json!({
                    "name": change.name.as_str(),
                    "beforeOid": change.old.as_ref().map_or(NOWHERE, Oid::as_str),
                    "afterOid": target.as_ref().map_or(NOWHERE, Oid::as_str),
                    "force": true,
                })
            })
            .collect();
        let query =
            "mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }";
        let input = json!({ "input": { "repositoryId": repository, "refUpdates": updates } });
        let done = || Ok(targets.iter().cloned().map(Swapped::Done).collect());
        let trouble = match self.api.graphql(Cost::Mutation, urgency, query, input) {
            Ok((_, errors)) if errors.is_empty() => return done(),
            Ok((_, errors)) => {
                let message = format!("GitHub refused to update refs: {}", errors.join(", "));
                Trouble::Unknown(error(ErrorKind::Busy, message))
            }
            Err(trouble) if nothing_done(&trouble) => return Err(trouble.into()),
            Err(trouble) => trouble,
        };
        self.settle_all(changes, &targets, trouble)
    }

    fn settle_all(
        &self,
        changes: &[Change],
        targets: &[Option<Oid>],
        trouble: Trouble,
    ) -> Result<Vec<Swapped>> {
        let found: Vec<_> = changes
            .iter()
            .zip(targets)
            .map(|(change, mine)| self.read_back(&change.name, change.old.as_ref(), mine.as_ref()))
            .collect();
        // An entry is ours alone, and all were swapped with it; what only goes along proves nothing.
        let proof = changes.iter().zip(&found).any(|(change, found)| {
            matches!(found, ReadBack::Done)
                && (is_written(change) || !changes.iter().any(is_written))
        });
        if proof {
            return Ok(targets.iter().cloned().map(Swapped::Done).collect());
        }
        if !found.iter().any(|found| matches!(found, ReadBack::Refused)) {
            let name = changes.first().map(|change| &change.name);
            return Err(match name {
                Some(name) => in_doubt(name, Some(trouble.into())),
                None => trouble.into(),
            });
        }
        let answer = |found: &ReadBack| match found {
            ReadBack::Refused => Swapped::Refused,
            ReadBack::Done | ReadBack::Unknown => Swapped::Aborted,
        };
        Ok(found.iter().map(answer).collect())
    }

    /// The commits that refs are to point to. Signs of life of sessions go along in the commit of
    /// a lock, where there is one.
    fn targets(&self, changes: &[Change], urgency: Urgency) -> Result<Vec<Option<Oid>>> {
        let of_lock = |change: &Change| change.name.as_str().starts_with(RefName::locks());
        let is_guest = |change: &Change| change.name.as_str().starts_with(RefName::sessions());
        let host = changes.iter().position(|c| of_lock(c) && is_written(c));
        let Some(host) = host else {
            return changes.iter().map(|change| self.target(change, Vec::new(), urgency)).collect();
        };
        let guests = changes.iter().filter(|change| is_guest(change));
        let also = guests.filter_map(|change| match &change.new {
            New::Entry(entry) | New::Root(entry) => Some((change.name.clone(), entry.clone())),
            New::At(_) | New::Nowhere => None,
        });
        let shared = self.target(&changes[host], also.collect(), urgency)?;
        let target = |(index, change): (usize, &Change)| match &change.new {
            New::Entry(_) | New::Root(_) if index == host || is_guest(change) => Ok(shared.clone()),
            _ => self.target(change, Vec::new(), urgency),
        };
        changes.iter().enumerate().map(target).collect()
    }

    /// The commit that a ref is to point to; written if it is an entry.
    fn target(
        &self,
        change: &Change,
        also: Vec<(RefName, Entry)>,
        urgency: Urgency,
    ) -> Result<Option<Oid>> {
        match &change.new {
            New::Nowhere => Ok(None),
            New::At(oid) => Ok(Some(oid.clone())),
            New::Entry(entry) | New::Root(entry) => {
                let comment = super::issue(&change.name).and_then(|issue| self.hints.get(issue));
                let is_root = matches!(change.new, New::Root(_));
                let follows = change.old.clone().filter(|_| is_root);
                let message = Message { also, follows, ..Message::new(entry.clone(), comment) };
                let parent = change.old.as_ref().filter(|_| !is_root);
                self.commit(message, parent, urgency).map(Some)
            }
        }
    }

    fn commit(&self, message: Message, old: Option<&Oid>, urgency: Urgency) -> Result<Oid> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_commit(&message, old, urgency) {
                // A commit that no ref points to is nothing.
                Err(Trouble::Unknown(_)) if tries < TRIES => {}
                Err(trouble) => return Err(trouble.into()),
                Ok(oid) => {
                    self.entries.put(oid.clone(), message);
                    return Ok(oid);
                }
            }
        }
    }

    fn try_commit(
        &self,
        message: &Message,
        old: Option<&Oid>,
        urgency: Urgency,
    ) -> Result<Oid, Trouble> {
        let tree = self.tree.get().map_or(EMPTY_TREE, String::as_str);
        let parents: Vec<_> = old.iter().map(|oid| oid.as_str()).collect();
        let body = json!({ "message": message.write(), "tree": tree, "parents": parents });
        let path = format!("{}/git/commits", self.api.repository);
        let call = Call::post(path, body).urgent(urgency);
        let answer = self.api.ask(&call)?;
        match answer.status {
            200..=299 => {
                let made: Made = answer.read("a new commit").map_err(Trouble::Unknown)?;
                oid(&made.sha).map_err(Trouble::Refused)
            }
            // Some servers want to have seen the tree before.
            404 | 422 if self.tree.get().is_none() && self.plant(urgency)? => {
                self.try_commit(message, old, urgency)
            }
            _ => Err(Trouble::Refused(self.api.refusal(&call, &answer))),
        }
    }

    /// Writes a tree with one small file; whether that worked.
    fn plant(&self, urgency: Urgency) -> Result<bool, Trouble> {
        let about = "Locks of sprag. Each commit message here is the state of one lock.\n";
        let file = json!({ "path": "README", "mode": "100644", "type": "blob", "content": about });
        let path = format!("{}/git/trees", self.api.repository);
        let answer = self.api.ask(&Call::post(path, json!({ "tree": [file] })).urgent(urgency))?;
        if !answer.is_success() {
            return Ok(false);
        }
        let made: Made = answer.read("a new tree").map_err(Trouble::Unknown)?;
        self.tree.get_or_init(|| made.sha);
        Ok(true)
    }
}

/// Whether it is a commit that is written for it.
const fn is_written(change: &Change) -> bool {
    matches!(change.new, New::Entry(_) | New::Root(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_of_life_go_first() {
        let session = RefName::new("refs/sprag/sessions/a").unwrap();
        let lock = RefName::new("refs/sprag/locks/a").unwrap();
        let change = |name: &RefName| Change { name: name.clone(), old: None, new: New::Nowhere };
        assert_eq!(super::super::urgency(&[change(&session)]), Urgency::Renewal);
        assert_eq!(super::super::urgency(&[change(&session), change(&lock)]), Urgency::Normal);
    }
}
