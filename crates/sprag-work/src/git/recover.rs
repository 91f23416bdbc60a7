//! Freeing what the dead held, without losing what they did.

use std::collections::BTreeSet;

use sprag_core::store::Eviction;
use sprag_core::{AuditEntry, AuditKind, AuditQuery, HolderView};
use sprag_git::RefChange;
use sprag_ledger::{Change, Concluded, New, Oid, RefName};

use super::{GitSource, wait};
use crate::error::{Error, ErrorKind, Result};
use crate::name::ItemName;
use crate::repo::{ClaimNote, Remote, Worktree, branch_ref};

/// How often a claim is looked at anew that changed while it was being freed.
const ATTEMPTS: usize = 5;
/// Where work is kept that nobody brought to main.
const RESCUE: &str = "refs/sprag/rescue/";
/// How many entries of a lock's trail are looked at.
const TRAIL: usize = 100;
/// What the reason begins with for which a claim is broken together with its branch.
const RECOVERED: &str = "recovered: ";
const UPLOADS: &str = "refs/sprag/uploads/";

/// What is to be freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recover {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Count the workers of these items as dead, whatever was seen of them.
    pub assume_dead: bool,
    /// Only these items; all if there are none.
    pub items: Vec<String>,
}

/// What became of a dead claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The item.
    pub item: ItemName,
    /// Whose claim it was.
    pub worker: String,
    /// How it is known that it is dead.
    pub signs: String,
    /// What was done about it.
    pub fate: Fate,
    /// Where commits were kept that are not on main.
    pub rescued: Vec<String>,
}

/// What was done about a dead claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The item is free again.
    Freed,
    /// It would be, if it was not only asked.
    WouldFree,
    /// The claim was over; what it left on this machine is gone.
    CleanedUp,
    /// It changed meanwhile: somebody lives, or somebody else was faster.
    Changed,
}

impl GitSource {
    /// Frees the claims of dead workers and keeps what they did. A worker is dead if its process on
    /// this machine is gone, or if nobody has seen a sign of life of it for its TTL.
    ///
    /// # Errors
    ///
    /// If the remote cannot be read or written. What was freed before stays so.
    pub fn recover(&self, options: &Recover) -> Result<Vec<Recovered>> {
        if options.assume_dead && options.items.is_empty() {
            return Err(Error::input("which workers are dead? name their items")
                .next("see who has what", "sprag work board"));
        }
        let mut done = self.recover_here(options)?;
        let known: BTreeSet<_> = done.iter().map(|one| one.item.clone()).collect();
        // Of a claim that was over its branch may still be there.
        let freed = done.iter().filter(|one| one.fate != Fate::CleanedUp);
        let freed: BTreeSet<_> = freed.map(|one| one.item.clone()).collect();
        done.extend(self.recover_elsewhere(options, &known)?);
        done.extend(self.recover_expired(options, &freed)?);
        if !options.dry_run {
            self.sweep()?;
        }
        Ok(done)
    }

    /// Claims that processes of this clone made, and that are gone.
    fn recover_here(&self, options: &Recover) -> Result<Vec<Recovered>> {
        let mut done = Vec::new();
        for note in self.repo.desk().notes::<ClaimNote>()? {
            if !options.is_about(&note.item) {
                continue;
            }
            // Whoever works under it has it locked.
            let Some(mut slip) = self.repo.desk().slip(&note.item)? else { continue };
            let Some(note) = slip.read::<ClaimNote>() else { continue };
            let view = wait(self.client.inspect(note.item.lock().as_str()))?;
            let held = view.holders.iter().find(|holder| note.is_about(&holder.holder));
            let recovered = match held {
                Some(_) if note.detached => continue,
                Some(holder) => {
                    let signs = "its process on this machine is gone";
                    self.free(&note.item, holder, Some(&note), signs, options)?
                }
                None => {
                    let rescued =
                        if options.dry_run { Vec::new() } else { self.clear_away(&note)? };
                    Recovered {
                        item: note.item.clone(),
                        worker: self.holder.worker_id.clone(),
                        signs: "its claim is over".to_owned(),
                        fate: if options.dry_run { Fate::WouldFree } else { Fate::CleanedUp },
                        rescued,
                    }
                }
            };
            let over = matches!(recovered.fate, Fate::Freed | Fate::CleanedUp);
            done.push(recovered);
            if over {
                slip.remove();
            }
        }
        Ok(done)
    }

    /// Claims of anybody whose worker gives no sign of life.
    fn recover_elsewhere(
        &self,
        options: &Recover,
        known: &BTreeSet<ItemName>,
    ) -> Result<Vec<Recovered>> {
        let mut done = Vec::new();
        for (item, lock) in self.locks()? {
            let Some(holder) = lock.holders.first() else { continue };
            if !options.is_about(&item) || known.contains(&item) {
                continue;
            }
            let (silent, stale) = self.silence(&item, holder);
            let silent = silent.unwrap_or_default().as_secs();
            if !stale && !options.assume_dead {
                continue;
            }
            // Nobody frees what a process of this very clone works on.
            let Some(mut slip) = self.repo.desk().slip(&item)? else { continue };
            let note = slip.read().filter(|note: &ClaimNote| note.is_about(&holder.holder));
            let signs = match stale {
                true => format!("silent for {silent}s (limit {}s)", holder.ttl.as_secs()),
                false => "an operator says so".to_owned(),
            };
            let recovered = self.free(&item, holder, note.as_ref(), &signs, options)?;
            let over = recovered.fate == Fate::Freed;
            done.push(recovered);
            if over {
                slip.remove();
            }
        }
        Ok(done)
    }

    /// Branches of claims whose time was over.
    pub(super) fn recover_expired(
        &self,
        options: &Recover,
        known: &BTreeSet<ItemName>,
    ) -> Result<Vec<Recovered>> {
        let (remote, locks) = (self.repo.look()?, self.locks()?);
        let mut done = Vec::new();
        for branch in remote.branches.keys() {
            for item in self.flow.claims_of(branch) {
                let free = !locks.contains_key(&item) && !known.contains(&item);
                if !free || !options.is_about(&item) {
                    continue;
                }
                let Some(worker) = self.last_claim(&item, branch)? else { continue };
                let signs = "its time was over".to_owned();
                let (rescued, fate) = if options.dry_run {
                    (Vec::new(), Fate::WouldFree)
                } else {
                    self.delete_expired(&item, branch, &remote)?
                };
                done.push(Recovered { item, worker, signs, fate, rescued });
            }
        }
        Ok(done)
    }

    /// Who made a branch, if that was a claim that was never released: its time was over, its
    /// worker was cut off, or an operator broke the lock alone. Whoever releases or frees an item
    /// takes the branch away in the same step.
    fn last_claim(&self, item: &ItemName, branch: &str) -> Result<Option<String>> {
        let query = AuditQuery { name: Some(item.lock()), limit: TRAIL, ..AuditQuery::default() };
        let mut trail = wait(self.client.audit(&query))?;
        trail.sort_by_key(|entry| std::cmp::Reverse(entry.fence));
        let only_tells = [AuditKind::Lost, AuditKind::RenewedLate, AuditKind::Refused];
        let newest = trail.first().map(|entry| entry.fence);
        let mut last = trail.into_iter().filter(|entry| Some(entry.fence) == newest);
        let freed = |entry: &AuditEntry| {
            entry.detail.as_deref().is_some_and(|why| why.contains(&format!(": {RECOVERED}")))
        };
        let ended = |entry: &AuditEntry| match entry.kind {
            AuditKind::Acquired => false,
            AuditKind::Broken => freed(entry),
            kind => !only_tells.contains(&kind),
        };
        let reason = format!("{branch} (claim ");
        let ours = |entry: &AuditEntry| {
            entry.holder.reason.as_deref().is_some_and(|own| own.starts_with(&reason))
        };
        let mut worker = None;
        let over = last.any(|entry| {
            if entry.kind == AuditKind::Acquired && ours(&entry) {
                worker = Some(entry.holder.worker_id.clone());
            }
            ended(&entry)
        });
        Ok(worker.filter(|_| !over))
    }

    fn delete_expired(
        &self,
        item: &ItemName,
        branch: &str,
        remote: &Remote,
    ) -> Result<(Vec<String>, Fate)> {
        let (Some(tip), Some(name)) = (remote.branches.get(branch), branch_ref(branch)) else {
            return Ok((Vec::new(), Fate::Changed));
        };
        let rescued = self.rescue(item, remote, &[Some(tip)], branch)?;
        // With the lock in hand nobody else can be about to claim it.
        let lock = item.lock();
        let guard = wait(self.client.lock(lock.as_str()).ttl(self.run_ttl).try_acquire())?;
        let Some(guard) = guard else { return Ok((rescued, Fate::Changed)) };
        let gone = Change { name, old: Some(tip.clone()), new: New::Nowhere };
        let freed = wait(self.store.release_with(&lock, guard.lease(), vec![gone]))?;
        drop(guard);
        let fate = if freed == Concluded::Done { Fate::Freed } else { Fate::Changed };
        Ok((rescued, fate))
    }

    /// Breaks a claim if it is still the one that was looked at; its branch goes in the same step.
    fn free(
        &self,
        item: &ItemName,
        holder: &HolderView,
        note: Option<&ClaimNote>,
        signs: &str,
        options: &Recover,
    ) -> Result<Recovered> {
        let worker = holder.holder.worker_id.clone();
        let signs = signs.to_owned();
        let mut recovered = Recovered {
            item: item.clone(),
            worker,
            signs,
            fate: Fate::Changed,
            rescued: Vec::new(),
        };
        let reason = holder.holder.reason.as_deref().unwrap_or_default();
        let branch = reason.split(" (claim ").next().unwrap_or_default();
        let saved = match note.and_then(|note| note.worktree.as_ref()) {
            Some(path) if !options.dry_run => {
                self.repo.save_worktree(path, &format!("work: rescued {branch} - {item}"))?
            }
            _ => None,
        };
        for _ in 0..ATTEMPTS {
            let remote = self.repo.look()?;
            let tip = remote.branches.get(branch);
            if options.dry_run {
                recovered.fate = Fate::WouldFree;
                return Ok(recovered);
            }
            recovered.rescued = self.rescue(item, &remote, &[saved.as_ref(), tip], branch)?;
            let gone = tip.zip(branch_ref(branch)).map(|(tip, name)| Change {
                name,
                old: Some(tip.clone()),
                new: New::Nowhere,
            });
            let eviction = Eviction {
                name: item.lock(),
                fence: holder.fence,
                by: self.holder.worker_id.clone(),
                reason: format!("{RECOVERED}{}", recovered.signs),
            };
            let along = gone.into_iter().collect();
            match wait(self.store.evict_with(&eviction, along))? {
                Concluded::Done => {
                    recovered.fate = Fate::Freed;
                    if let Some(note) = note {
                        self.remove_leftovers(note)?;
                    }
                    return Ok(recovered);
                }
                Concluded::Lost(_) => return Ok(recovered),
                // Somebody pushed to the branch: that has to be kept as well.
                Concluded::InTheWay(_) => {}
            }
        }
        Ok(recovered)
    }

    /// Keeps commits that are not on main; where.
    fn rescue(
        &self,
        item: &ItemName,
        remote: &Remote,
        tips: &[Option<&Oid>],
        branch: &str,
    ) -> Result<Vec<String>> {
        let mut kept = Vec::new();
        for tip in tips.iter().flatten() {
            self.repo.fetch(tip, branch)?;
            if self.repo.is_ancestor(tip, &remote.main)? {
                continue;
            }
            let digits = tip.as_str().get(..12).unwrap_or_default();
            let name = format!("{RESCUE}{item}/{digits}");
            let reference = RefName::new(name.as_str())
                .ok_or_else(|| Error::input(format!("{name:?} is no name of a reference")))?;
            let new = Some((*tip).clone());
            let change = RefChange { name: reference, old: None, new, unique: false };
            match self.repo.push(&change) {
                Ok(()) => {}
                // The name is made of the commit, so it is there already.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
            if !kept.contains(&name) {
                kept.push(name);
            }
        }
        Ok(kept)
    }

    /// Takes away what a claim that is over left on this machine; where its work is kept.
    pub(super) fn clear_away(&self, note: &ClaimNote) -> Result<Vec<String>> {
        let mut rescued = Vec::new();
        if let Some(path) = &note.worktree {
            let message = format!("work: rescued {} - {}", note.branch, note.item);
            let saved = self.repo.save_worktree(path, &message)?;
            let remote = self.repo.look()?;
            rescued = self.rescue(&note.item, &remote, &[saved.as_ref()], &note.branch)?;
        }
        self.remove_leftovers(note)?;
        Ok(rescued)
    }

    fn remove_leftovers(&self, note: &ClaimNote) -> Result<()> {
        if let Some(path) = &note.worktree {
            let head = self.repo.worktree_head(path)?.unwrap_or_else(|| note.base.clone());
            let worktree = Worktree { path: path.clone(), branch: note.branch.clone() };
            self.repo.remove_worktree(&worktree, &head)?;
        }
        Ok(())
    }

    /// Removes what nobody needs any more: uploads and sessions of the dead, files of processes that
    /// are gone, worktrees that nobody has written down.
    fn sweep(&self) -> Result<()> {
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
        self.sweep_worktrees()?;
        self.sweep_branches()?;
        self.repo.desk().tidy()?;
        wait(self.store.tidy(self.run_ttl))?;
        Ok(())
    }

    /// Local branches of claims that are over, with nothing on them that is not on main.
    fn sweep_branches(&self) -> Result<()> {
        let mut remote = None;
        for (branch, tip) in self.repo.idle_branches()? {
            let Some(item) = self.flow.claims_of(&branch).next() else { continue };
            let Some(mut slip) = self.repo.desk().slip(&item)? else { continue };
            if slip.read::<ClaimNote>().is_some() {
                continue;
            }
            let seen = match remote.take() {
                Some(seen) => seen,
                None => self.repo.look()?,
            };
            let claimed = seen.branches.contains_key(&branch);
            if !claimed && self.repo.is_ancestor(&tip, &seen.main)? {
                self.repo.delete_branch(&branch, &tip)?;
            }
            slip.remove();
            remote = Some(seen);
        }
        Ok(())
    }

    /// Worktrees in our folder that no claim of this clone knows.
    fn sweep_worktrees(&self) -> Result<()> {
        for worktree in self.repo.worktrees()? {
            let Some(item) = self.flow.claims_of(&worktree.branch).next() else { continue };
            if !self.repo.is_own_worktree(&worktree) {
                continue;
            }
            let Some(mut slip) = self.repo.desk().slip(&item)? else { continue };
            if slip.read::<ClaimNote>().is_some() {
                continue;
            }
            let message = format!("work: rescued {} - {item}", worktree.branch);
            let saved = self.repo.save_worktree(&worktree.path, &message)?;
            let remote = self.repo.look()?;
            self.rescue(&item, &remote, &[saved.as_ref()], &worktree.branch)?;
            if let Some(head) = saved {
                self.repo.remove_worktree(&worktree, &head)?;
            }
            slip.remove();
        }
        Ok(())
    }
}

impl Recover {
    fn is_about(&self, item: &ItemName) -> bool {
        let named = |name: &String| {
            name == item.as_str() || item.split_stamp().is_some_and(|(front, _)| front == name)
        };
        self.items.is_empty() || self.items.iter().any(named)
    }
}
