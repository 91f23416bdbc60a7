//! [`GitClaim`]: an item that is ours, from the swap that says so.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_core::{Fence, Holder, LeaseId, LockGuard};
use sprag_ledger::{Companion, Oid};

use super::{GitSource, wait};
use crate::board::Board;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::{Place, State};
use crate::item::Item;
use crate::name::ItemName;
use crate::repo::{Checkout, ClaimNote, Slip, branch_ref};
use crate::source::{Claim, Claimed, How, Items, Purpose, Ready, Source, Wanted};
use crate::stats::{Counters, Stats};
use crate::task::{Finished, Leftover, Outcome, Task};

/// How many places in `Held` errors name a holder.
const UNKNOWN: &str = "somebody else";

/// An item that is ours. Dropped, it is released; what was done stays in its worktree until
/// `recover` finds it.
#[derive(Debug)]
pub struct GitClaim {
    pub(super) source: GitSource,
    pub(super) task: Task,
    pub(super) note: ClaimNote,
    pub(super) slip: Slip,
    /// `None` for a claim that another process made and left.
    pub(super) guard: Option<LockGuard>,
}

impl Source for GitSource {
    fn ready(&self, wanted: &Wanted) -> Result<Ready> {
        Ok(self.sift(&self.list()?, wanted))
    }

    fn claim(&self, item: &Item, how: &How) -> Result<Claimed> {
        Ok(match self.try_claim(item, how)? {
            Ok(claim) => Claimed::Won(Box::new(claim)),
            Err(why) => Claimed::Passed(why),
        })
    }
}

impl Items for GitSource {
    fn claim_named(&self, name: &str, how: &How) -> Result<Box<dyn Claim>> {
        Ok(Box::new(Self::claim_named(self, name, how)?))
    }

    fn reopen(&self, name: &str) -> Result<Box<dyn Claim>> {
        Ok(Box::new(Self::reopen(self, name)?))
    }

    fn claimed_in(&self, directory: &Path) -> Option<ItemName> {
        let notes = self.repo.desk().notes::<ClaimNote>().ok()?;
        let here = |note: &ClaimNote| {
            note.worktree.as_deref().is_some_and(|path| directory.starts_with(path))
        };
        notes.into_iter().find(here).map(|note| note.item)
    }

    fn board(&self) -> Result<Board> {
        Self::board(self)
    }

    fn stats(&self) -> Result<Stats> {
        Self::stats(self)
    }

    fn state(&self, name: &str) -> Result<State> {
        self.flow.state(name)
    }

    fn is_last(&self, state: &State) -> bool {
        self.flow.is_last(state)
    }

    fn shown(&self) -> String {
        format!("git:{}", self.repo.remote_name())
    }
}

impl GitSource {
    /// Claims an item that has to be free.
    ///
    /// # Errors
    ///
    /// Nothing if there is no such item; held if somebody has it.
    pub fn claim_named(&self, name: &str, how: &How) -> Result<GitClaim> {
        let listed = self.list()?;
        let item = self.find(&listed, name)?;
        let held = |why: String| {
            let message = format!("{} cannot be claimed: {why}", item.name);
            Error::new(ErrorKind::Held, message)
                .next("see who has what", "sprag work board")
                .next("free it if its worker is dead", format!("sprag work recover {}", item.name))
        };
        if let Some(branch) = self.claims(&listed.remote, &item.name).first() {
            return Err(held(format!("{}: branch {branch}", self.owner(&item.name))));
        }
        self.try_claim(item, how)?.map_err(held)
    }

    /// Tries once; why not, if it cannot be had.
    pub(super) fn try_claim(&self, item: &Item, how: &How) -> Result<Result<GitClaim, String>> {
        let word = match how.purpose {
            Purpose::Pend => Some(crate::State::PENDING),
            Purpose::Step => self.flow.claim_word(&item.place.state),
        };
        let Some(word) = word else {
            let place = &item.place;
            return Err(Error::input(format!("{} is done: it is in {place}", item.name)));
        };
        let branch = format!("{word}-{}", item.name);
        let Some(mut slip) = self.repo.desk().slip(&item.name)? else {
            return Ok(Err("claimed: by another process of this clone".to_owned()));
        };
        let before = slip.read::<ClaimNote>();
        if let Some(before) = &before
            && self.is_still_claimed(before)?
        {
            let verb = if before.detached { "release" } else { "recover" };
            return Ok(Err(format!("claimed here before: sprag work {verb} {}", item.name)));
        }
        // Its worker is dead, and somebody else has freed the item.
        let leftovers = match self.make_room(before.as_ref(), item, &branch, how) {
            Ok(leftovers) => leftovers,
            Err(error) if error.kind() == ErrorKind::Held => {
                slip.remove();
                return Ok(Err(error.message().to_owned()));
            }
            Err(error) => return Err(error),
        };
        let main = self.repo.recent_main()?;
        let path = item.place.path(&self.root, &item.name);
        let mut note = self.new_note(item, &branch, &path, &main);
        slip.write(&note)?;
        let guard = match self.acquire(item, &note, how) {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                slip.remove();
                Counters::count(&self.repo.desk(), false);
                let owner = self.owner(&item.name);
                return Ok(Err(with(&leftovers, format!("lost race to {owner}"))));
            }
            // Whether it was taken is not known; if it was, the client gives it back.
            Err(error) => return Err(error),
        };
        Counters::count(&self.repo.desk(), true);
        (note.lease, note.fence) = (guard.lease(), guard.fence());
        slip.write(&note)?;
        let mut claim = self.new_claim(item, &branch, &path, note, slip, Some(guard));
        // Whoever had it before has moved it in the same step in which it became free.
        if let Err(why) = claim.check_place()? {
            claim.give_back()?;
            return Ok(Err(with(&leftovers, why)));
        }
        if how.worktree
            && let Err(error) = claim.open_worktree()
        {
            claim.give_back()?;
            return Err(error);
        }
        claim.task.leftovers = leftovers;
        Ok(Ok(claim))
    }

    /// Puts away what claims that are over left in the way of a new one; what stays, and where.
    ///
    /// # Errors
    ///
    /// Held if something is in the way that no claim made.
    fn make_room(
        &self,
        before: Option<&ClaimNote>,
        item: &Item,
        branch: &str,
        how: &How,
    ) -> Result<Vec<Leftover>> {
        let mut leftovers = match before {
            Some(before) => self.clear_away(before)?.into_leftovers(),
            None => Vec::new(),
        };
        if how.worktree {
            // Of those that are not written down any more.
            for checkout in self.repo.checkouts() {
                if checkout.item == item.name {
                    let branch = checkout.branch.clone();
                    let cleared = self.clear(&item.name, &branch, None, Some(&checkout))?;
                    leftovers.extend(cleared.into_leftovers());
                }
            }
            leftovers.extend(self.repo.free_branch(branch, &[&self.repo.recent_main()?])?);
        }
        Ok(leftovers)
    }

    /// Takes the lock and makes the branch, in one swap; `None` if somebody has either.
    fn acquire(&self, item: &Item, note: &ClaimNote, how: &How) -> Result<Option<LockGuard>> {
        let (lock, branch) = (item.name.lock(), &note.branch);
        let name = branch_ref(branch)
            .ok_or_else(|| Error::input(format!("{branch:?} cannot be the name of a branch")))?;
        let companion = Companion { branch: name, before: None, at: note.at.clone() };
        self.store.accompany(&lock, companion);
        let ttl = how.first_ttl(self.run_ttl);
        let request = self.client.lock(lock.as_str()).ttl(ttl).reason(note.reason());
        let holder = Holder { reason: Some(note.reason()), ..self.holder.clone() };
        let acquired = wait(request.holder(holder).try_acquire());
        // Where it is not known whether it was taken, the client gives it back, branch and all.
        if matches!(acquired, Ok(None)) {
            drop(self.store.part(&lock));
        }
        Ok(acquired?)
    }

    fn new_note(&self, item: &Item, branch: &str, path: &str, main: &Oid) -> ClaimNote {
        ClaimNote {
            id: format!("{:032x}", OsEntropy.next_u128())[..16].to_owned(),
            item: item.name.clone(),
            path: path.to_owned(),
            branch: branch.to_owned(),
            base: main.clone(),
            at: main.clone(),
            lease: LeaseId::from_u128(0),
            fence: Fence::ZERO,
            worktree: None,
            detached: false,
            worker: Some(self.holder.worker_id.clone()),
        }
    }

    fn new_claim(
        &self,
        item: &Item,
        branch: &str,
        path: &str,
        note: ClaimNote,
        slip: Slip,
        guard: Option<LockGuard>,
    ) -> GitClaim {
        let task = Task {
            item: item.clone(),
            branch: Some(branch.to_owned()),
            fence: note.fence,
            directory: self.repo.top().to_owned(),
            has_worktree: false,
            folder: Some(path.to_owned()),
            issue: None,
            leftovers: Vec::new(),
        };
        GitClaim { source: self.clone(), task, note, slip, guard }
    }

    /// A claim that was made here and kept.
    ///
    /// # Errors
    ///
    /// Not claimed if there is none, or a process works under it.
    pub fn reopen(&self, name: &str) -> Result<GitClaim> {
        let listed = self.list()?;
        let wanted = |note: &&ClaimNote| {
            let name_of = note.item.as_str();
            name_of == name || note.item.split_stamp().is_some_and(|(front, _)| front == name)
        };
        let notes = self.repo.desk().notes::<ClaimNote>()?;
        let Some(note) = notes.iter().find(wanted) else {
            let message = format!("{name:?} is not claimed here");
            return Err(Error::new(ErrorKind::NotClaimed, message)
                .next("claim it", format!("sprag work claim {name}"))
                .next("see who has what", "sprag work board"));
        };
        let Some(slip) = self.repo.desk().slip(&note.item)? else {
            let message = format!("a command of this clone works on {} right now", note.item);
            return Err(Error::new(ErrorKind::NotClaimed, message)
                .next("see who has what", "sprag work board"));
        };
        let item = self.item_at(&listed, note)?;
        let (branch, path) = (note.branch.clone(), note.path.clone());
        let mut claim = self.new_claim(&item, &branch, &path, note.clone(), slip, None);
        if let Some(worktree) = claim.note.worktree.clone() {
            claim.task.directory = worktree;
            claim.task.has_worktree = true;
        }
        Ok(claim)
    }

    /// The item that a claim is about, as it was when it was claimed.
    fn item_at(&self, listed: &super::list::Listed, note: &ClaimNote) -> Result<Item> {
        let here = listed.items.iter().find(|item| {
            item.name == note.item && item.place.path(&self.root, &item.name) == note.path
        });
        here.cloned().map_or_else(|| self.lost_item(note), Ok)
    }

    /// Somebody moved it without a claim; the work under ours is still worth something.
    fn lost_item(&self, note: &ClaimNote) -> Result<Item> {
        let below = note.path.strip_prefix(&self.root).and_then(|path| path.strip_prefix('/'));
        let parts: Vec<_> = below.unwrap_or_default().split('/').collect();
        let place = self.flow.locate(&parts).map(|(place, ..)| place);
        let place = place.ok_or_else(|| {
            Error::input(format!("{} is in no state of this flow: {}", note.item, note.path))
        })?;
        Ok(Item { name: note.item.clone(), place, priority: 0, left: None, order: 0, since: None })
    }

    /// Whether the remote still knows the claim.
    pub(super) fn is_still_claimed(&self, note: &ClaimNote) -> Result<bool> {
        let view = wait(self.client.inspect(note.item.lock().as_str()))?;
        Ok(view.holders.iter().any(|holder| note.is_about(&holder.holder)))
    }

    /// Who has an item, for people.
    pub(super) fn owner(&self, item: &ItemName) -> String {
        let view = wait(self.client.inspect(item.lock().as_str())).ok();
        let holder = view.and_then(|view| view.holders.into_iter().next());
        holder.map_or_else(|| UNKNOWN.to_owned(), |holder| holder.holder.worker_id)
    }
}

impl GitClaim {
    /// Whether the item is still where it was when it was chosen; why not, if it is not.
    fn check_place(&mut self) -> Result<Result<(), String>> {
        let source = &self.source;
        let remote = source.repo.look()?;
        let others = source.claims(&remote, &self.task.item.name);
        if let Some(other) = others.iter().find(|branch| **branch != self.note.branch) {
            return Ok(Err(format!("claimed: branch {other}")));
        }
        if source.repo.files(&remote.main, &self.note.path)?.is_empty() {
            return Ok(Err("moved on meanwhile".to_owned()));
        }
        // What is worked on begins at the newest there is.
        self.note.base = remote.main;
        Ok(Ok(()))
    }

    fn open_worktree(&mut self) -> Result<()> {
        let repo = &self.source.repo;
        let path = repo.new_folder(&self.note.branch, &self.note.id)?;
        // Written down before git makes it, so that half of one is found.
        self.note.worktree = Some(path.clone());
        self.slip.write(&self.note)?;
        let (item, branch, id) = (&self.note.item, &self.note.branch, &self.note.id);
        repo.add_worktree(item, branch, id, (&path, &self.note.base))?;
        self.task.directory = path;
        self.task.has_worktree = true;
        Ok(())
    }

    /// Where it is worked on, if it has a worktree that is still there.
    pub(super) fn checkout(&self) -> Option<Checkout> {
        self.note.worktree.as_ref().and_then(|_| self.source.repo.checkout(&self.note.id))
    }

    /// Releases a claim under which nothing was done.
    fn give_back(mut self) -> Result<()> {
        if let Some(guard) = self.guard.take() {
            wait(guard.release())?;
        }
        self.slip.remove();
        Ok(())
    }

    /// The place that the item was claimed in.
    pub(super) fn place(&self) -> &Place {
        &self.task.item.place
    }
}

/// Why an item cannot be had, and what was put away before that was known.
fn with(leftovers: &[Leftover], why: String) -> String {
    leftovers.iter().fold(why, |why, leftover| format!("{why}; {leftover}"))
}

impl Claim for GitClaim {
    fn task(&self) -> &Task {
        &self.task
    }

    fn guard(&self) -> Option<&LockGuard> {
        self.guard.as_ref()
    }

    fn lifeline(&self) -> Option<OwnedFd> {
        self.slip.lifeline()
    }

    fn finish(self: Box<Self>, outcome: Outcome) -> Result<Finished> {
        self.conclude(outcome)
    }

    fn keep(mut self: Box<Self>, ttl: Duration) -> Result<Task> {
        if let Some(mut guard) = self.guard.take() {
            wait(guard.extend(ttl))?;
            // From now on the branch is no business of this process.
            drop(self.source.store.part(guard.name()));
            wait(guard.into_ticket())?;
        }
        self.note.detached = true;
        self.slip.write(&self.note)?;
        Ok(self.task)
    }
}
