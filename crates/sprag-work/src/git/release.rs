//! How a claim ends without moving its item: what was done is kept, and the worktree is put away.

use std::collections::BTreeSet;

use sprag_git::RefChange;
use sprag_ledger::{Concluded, Oid};

use super::claim::GitClaim;
use super::recover::Recover;
use super::wait;
use crate::error::{Error, Result};
use crate::repo::{Remote, UNFINISHED, branch_ref};
use crate::task::{Finished, Leftover};

impl GitClaim {
    /// Ends the claim without moving the item. What was done is left on a branch; what was pushed
    /// by hand to the claim's branch as well, if that is `ours`.
    pub(super) fn let_go(mut self, ours: bool) -> Result<Finished> {
        let message = format!("work: unfinished {} - {}", self.note.branch, self.task.item.name);
        let saved = self.save(&message).map_err(|error| self.stays_here(error))?;
        let remote = self.source.repo.look()?;
        let mut branches = self.leave(&remote, &saved, ours)?.into_iter();
        let along = self.branch_gone(&remote).into_iter().collect();
        let (lock, lease) = (self.task.item.name.lock(), self.note.lease);
        let concluded = wait(self.source.store.release_with(&lock, lease, along))?;
        match concluded {
            Concluded::Done => {}
            // Somebody pushed to the branch: it stays, as a claim made by hand.
            Concluded::InTheWay(_) => {
                drop(wait(self.source.store.release_with(&lock, lease, Vec::new()))?);
            }
            // Whoever was cut off for too long has its branch left. If somebody else has the item by
            // now, it is theirs.
            Concluded::Lost(_) => self.drop_branch(),
        }
        let safe: Vec<_> = saved.iter().flatten().chain([&remote.main]).collect();
        let mut leftovers = self.clean_up(&safe);
        let left_on = branches.next();
        let also =
            branches.map(|name| Leftover::kept("commits beside these", format!("branch {name}")));
        leftovers.extend(also);
        let (item, from) = (self.task.item.name.clone(), self.place().clone());
        Ok(Finished { item, to: from.clone(), from, commits: 0, left_on, merged: None, leftovers })
    }

    /// Takes the branch of a lost claim away, if the item is free. Otherwise that is for `recover`.
    fn drop_branch(&self) {
        let name = &self.task.item.name;
        drop(self.source.store.part(&name.lock()));
        let only = Recover { items: vec![name.to_string()], ..Recover::default() };
        if let Err(error) = self.source.recover_expired(&only, &BTreeSet::new()) {
            tracing::warn!(%error, item = %name, "the branch of the lost claim is left for `recover`");
        }
    }

    /// The work could not be saved, and is where it was.
    fn stays_here(&self, error: Error) -> Error {
        let Some(checkout) = self.checkout() else { return error };
        let name = &self.task.item.name;
        error
            .fact("work", format!("kept in {}", checkout.path.display()))
            .next("clear it up later", format!("sprag work recover {name}"))
    }

    /// Pushes what is not on main to branches that are no claims; their names.
    fn leave(
        &self,
        remote: &Remote,
        [head, branch]: &[Option<Oid>; 2],
        ours: bool,
    ) -> Result<Vec<String>> {
        let repo = &self.source.repo;
        let pushed = remote.branches.get(&self.note.branch).filter(|_| ours);
        if let Some(pushed) = pushed {
            repo.fetch(pushed, &self.note.branch)?;
        }
        let (mut left, mut safe) = (Vec::new(), vec![&remote.main, &self.note.base]);
        let tips = [(head.as_ref(), ""), (branch.as_ref(), ".branch"), (pushed, ".pushed")];
        for (tip, mark) in tips {
            let Some(tip) = tip else { continue };
            let mut known = false;
            for other in &safe {
                known = known || repo.is_ancestor(tip, other)?;
            }
            if known {
                continue;
            }
            let name = format!("{UNFINISHED}{}.{}{mark}", self.note.branch, self.note.id);
            let reference = branch_ref(&name).expect("a branch's name with digits behind it");
            let new = Some(tip.clone());
            repo.push(&RefChange { name: reference, old: None, new, unique: true })?;
            left.push(name);
            safe.push(tip);
        }
        Ok(left)
    }

    /// Nothing of the claim is needed any more on this machine, but for what is not in the `safe`
    /// commits.
    pub(super) fn clean_up(&mut self, safe: &[&Oid]) -> Vec<Leftover> {
        if let Some(guard) = self.guard.take() {
            // It is free; the client only has to learn that.
            drop(guard);
        }
        let repo = &self.source.repo;
        let Some(path) = &self.note.worktree else {
            self.slip.erase();
            return Vec::new();
        };
        let shown = path.display().to_string();
        let left = match self.checkout() {
            Some(checkout) => repo.put_away(&checkout, safe),
            None => {
                let note = Some(&self.note);
                self.source.put_away(note, &self.note.branch, None, safe)
            }
        };
        match left {
            Ok(left) => {
                self.slip.erase();
                left
            }
            // `recover` tries again.
            Err(error) => vec![Leftover::kept(error.message(), shown)],
        }
    }
}
