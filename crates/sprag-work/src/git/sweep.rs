//! What claims that are over left behind, on this machine and on the remote.

use std::collections::BTreeSet;

use sprag_git::RefChange;
use sprag_ledger::Oid;

use super::recover::{Fate, Recover, Recovered};
use super::{GitSource, wait};
use crate::error::Result;
use crate::item::Item;
use crate::name::ItemName;
use crate::repo::{Branch, Checkout, ClaimNote};
use crate::task::Leftover;

const UPLOADS: &str = "refs/sprag/uploads/";

/// What became of what a dead worker left.
#[derive(Debug, Default)]
pub(super) struct Cleared {
    /// Where its commits are kept.
    pub(super) rescued: Vec<String>,
    pub(super) leftovers: Vec<Leftover>,
}

impl Cleared {
    pub(super) fn into_leftovers(self) -> Vec<Leftover> {
        let commits = |name| Leftover::kept("the commits of a dead worker", name);
        self.rescued.into_iter().map(commits).chain(self.leftovers).collect()
    }
}

impl GitSource {
    /// Puts away what a claim that is over left on this machine.
    pub(super) fn clear_away(&self, note: &ClaimNote) -> Result<Cleared> {
        let checkout = self.repo.checkout(&note.id);
        if note.worktree.is_none() && checkout.is_none() {
            return Ok(Cleared::default());
        }
        self.clear(&note.item, &note.branch, Some(note), checkout.as_ref())
    }

    /// Puts a worktree away whose claim is over, and its branch.
    pub(super) fn clear(
        &self,
        item: &ItemName,
        branch: &str,
        note: Option<&ClaimNote>,
        checkout: Option<&Checkout>,
    ) -> Result<Cleared> {
        let tips = self.local_tips(item, branch, checkout, true)?;
        let remote = self.repo.look()?;
        let rescued = self.rescue(item, &remote, &tips.each_ref().map(Option::as_ref), branch)?;
        let safe: Vec<_> = tips.iter().flatten().chain([&remote.main]).collect();
        let leftovers = self.put_away(note, branch, checkout, &safe)?;
        Ok(Cleared { rescued, leftovers })
    }

    /// The work of a dead worker on this machine: what its worktree is at after all is committed,
    /// and its branch.
    pub(super) fn local_tips(
        &self,
        item: &ItemName,
        branch: &str,
        checkout: Option<&Checkout>,
        has_worktree: bool,
    ) -> Result<[Option<Oid>; 2]> {
        let message = format!("work: rescued {branch} - {item}");
        let head = match checkout {
            // What cannot be committed stays in its folder.
            Some(checkout) => match self.repo.save(checkout, &message) {
                Ok(head) => head,
                Err(_) => self.repo.head_of(checkout)?,
            },
            None => None,
        };
        let tip = if has_worktree { self.repo.branch(branch)? } else { None };
        Ok([head, tip.map(|branch| branch.tip)])
    }

    /// Removes the worktree of a dead worker, or leaves it to the user; what is left, and where.
    pub(super) fn put_away(
        &self,
        note: Option<&ClaimNote>,
        branch: &str,
        checkout: Option<&Checkout>,
        safe: &[&Oid],
    ) -> Result<Vec<Leftover>> {
        if let Some(checkout) = checkout {
            return self.repo.put_away(checkout, safe);
        }
        let mut left = Vec::new();
        if let Some(path) = note.and_then(|note| note.worktree.as_ref()) {
            self.repo.remove_unused(path);
            if path.exists() {
                let folder = path.display().to_string();
                left.push(Leftover::kept("what is not of this claim any more", folder));
            }
        }
        // What is checked out elsewhere was given to another worktree by hand, and stays.
        let is_free = |branch: &Branch| branch.used_in.is_none();
        if self.repo.branch(branch)?.as_ref().is_some_and(is_free) {
            left.extend(self.repo.free_branch(branch, safe)?);
        }
        Ok(left)
    }

    /// Worktrees of claims that this clone has no note of any more.
    pub(super) fn recover_forgotten(&self, options: &Recover) -> Result<Vec<Recovered>> {
        let mut done = Vec::new();
        for checkout in self.repo.checkouts() {
            let Checkout { item, branch, id, .. } = &checkout;
            if !options.is_about(item) {
                continue;
            }
            let Some(mut slip) = self.repo.desk().slip(item)? else { continue };
            let note = slip.read::<ClaimNote>();
            let is_known = note.as_ref().is_some_and(|note| note.id == *id);
            if !is_known && !self.is_held(item, id)? {
                let mut recovered = Recovered::new(item, None, "its claim is over");
                recovered.fate = Fate::WouldCleanUp;
                if !options.dry_run {
                    recovered.put_away(self.clear(item, branch, None, Some(&checkout))?);
                }
                done.push(recovered);
            }
            if note.is_none() {
                slip.remove();
            }
        }
        Ok(done)
    }

    /// Whether a claim is the one that has the item on the remote.
    fn is_held(&self, item: &ItemName, id: &str) -> Result<bool> {
        let view = match wait(self.client.inspect(item.lock().as_str())) {
            // Whose it is cannot be known, so nothing of it is touched.
            Err(error) if error.is_corrupt() => return Ok(true),
            view => view?,
        };
        let mark = format!("(claim {id})");
        let reasons = view.holders.iter().filter_map(|holder| holder.holder.reason.as_deref());
        Ok(reasons.into_iter().any(|reason| reason.ends_with(&mark)))
    }

    /// Local branches that are named like claims on items and that no claim works on.
    pub(super) fn recover_branches(&self, options: &Recover) -> Result<Vec<Recovered>> {
        let mut done = Vec::new();
        let idle = |branch: &Branch| branch.used_in.is_none() && !branch.has_upstream;
        let mut branches = self.repo.branches()?;
        branches
            .retain(|branch| idle(branch) && self.flow.claims_of(&branch.name).next().is_some());
        if branches.is_empty() {
            return Ok(done);
        }
        let listed = self.list()?;
        for Branch { name, tip, .. } in branches {
            let Some(item) = self.flow.claims_of(&name).next() else { continue };
            let named = |known: &Item| {
                let stamped = known.name.split_stamp().map(|(front, _)| front);
                known.name == item || stamped == Some(item.as_str())
            };
            let is_item = listed.items.iter().any(named);
            // On the remote as well it is a claim by hand.
            let claimed = listed.remote.branches.contains_key(&name);
            if !is_item || claimed || !options.is_about(&item) {
                continue;
            }
            let Some(mut slip) = self.repo.desk().slip(&item)? else { continue };
            if slip.read::<ClaimNote>().is_some() {
                continue;
            }
            let main = &listed.remote.main;
            if options.dry_run {
                if !self.repo.is_ancestor(&tip, main)? {
                    let mut recovered =
                        Recovered::new(&item, None, "no claim is on its local branch");
                    recovered.fate = Fate::WouldCleanUp;
                    done.push(recovered);
                }
            } else if let Some(kept) = self.repo.free_branch(&name, &[main])? {
                let mut recovered = Recovered::new(&item, None, "no claim is on its local branch");
                recovered.put_away(Cleared { rescued: Vec::new(), leftovers: vec![kept] });
                done.push(recovered);
            }
            slip.remove();
        }
        Ok(done)
    }

    /// Removes what nobody needs any more: uploads and sessions of the dead, and files of processes
    /// that are gone.
    pub(super) fn sweep(&self) -> Result<()> {
        let ledger = self.store.ledger();
        let uploads = ledger.list(UPLOADS)?;
        if !uploads.is_empty() {
            // Read after the uploads: a claim that is not there now has none that is needed.
            let alive: BTreeSet<String> = self
                .locks()?
                .values()
                .flat_map(|lock| &lock.holders)
                .filter_map(|holder| holder.holder.reason.clone())
                .collect();
            for (name, tip) in uploads {
                let id = name.as_str().strip_prefix(UPLOADS).unwrap_or_default().to_owned();
                let mark = format!("(claim {id})");
                if !alive.iter().any(|reason| reason.ends_with(&mark)) {
                    let change = RefChange { name, old: Some(tip), new: None, unique: true };
                    drop(self.repo.push(&change));
                }
            }
        }
        self.repo.desk().tidy()?;
        wait(self.store.tidy(self.run_ttl))?;
        Ok(())
    }
}
