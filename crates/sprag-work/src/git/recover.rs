//! Freeing what the dead held, without losing what they did.

use std::collections::BTreeSet;

use sprag_core::store::Eviction;
use sprag_core::{AuditEntry, AuditKind, AuditQuery, HolderView};
use sprag_git::RefChange;
use sprag_ledger::{Change, Concluded, New, Oid, RefName};

use super::sweep::Cleared;
use super::{GitSource, wait};
use crate::error::{Error, ErrorKind, Result};
use crate::name::ItemName;
use crate::repo::{ClaimNote, Remote, branch_ref};
use crate::task::Leftover;

/// How often a claim is looked at anew that changed while it was being freed.
const ATTEMPTS: usize = 5;
/// Where work is kept that nobody brought to main.
const RESCUE: &str = "refs/sprag/rescue/";
/// How many entries of a lock's trail are looked at.
const TRAIL: usize = 100;
/// How it is known that a worker is dead with `--assume-dead`.
const OPERATOR: &str = "an operator says so";
/// What the reason begins with for which a claim is broken together with its branch.
const RECOVERED: &str = "recovered: ";

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
    /// Whose claim it was, if that is known.
    pub worker: Option<String>,
    /// How it is known that it is dead.
    pub signs: String,
    /// What was done about it.
    pub fate: Fate,
    /// Where commits were kept that are not on main.
    pub rescued: Vec<String>,
    /// What was on this machine that no merge can bring to main.
    pub leftovers: Vec<Leftover>,
}

/// What was done about a dead claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The item is free again.
    Freed,
    /// It would be, if it was not only asked.
    WouldFree,
    /// The claim was over; what it left on this machine was put away.
    CleanedUp,
    /// It would be, if it was not only asked.
    WouldCleanUp,
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
        done.extend(self.recover_forgotten(options)?);
        done.extend(self.recover_branches(options)?);
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
            let view = match wait(self.client.inspect(note.item.lock().as_str())) {
                // Whose it is cannot be known; no other item has to wait for that.
                Err(error) if error.is_corrupt() => {
                    tracing::warn!(%error, item = %note.item, "a damaged lock is left alone");
                    continue;
                }
                view => view?,
            };
            let held = view.holders.iter().find(|holder| note.is_about(&holder.holder));
            let recovered = match held {
                Some(_) if note.detached => continue,
                Some(holder) => {
                    let signs = "its process on this machine is gone";
                    self.free(&note.item, holder, Some(&note), signs, options)?
                }
                None => {
                    let over = "its claim is over";
                    let mut recovered = Recovered::new(&note.item, note.worker.clone(), over);
                    recovered.fate = Fate::WouldCleanUp;
                    if !options.dry_run {
                        recovered.put_away(self.clear_away(&note)?);
                    }
                    recovered
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
                false => OPERATOR.to_owned(),
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
                let told = options.dry_run && known.contains(&item);
                if locks.contains_key(&item) || told || !options.is_about(&item) {
                    continue;
                }
                // A branch that was pushed by hand is a claim until an operator says otherwise.
                let worker = self.last_claim(&item, branch)?;
                let signs = match &worker {
                    Some(_) => "its time was over".to_owned(),
                    None if options.assume_dead => format!("branch {branch} by hand, {OPERATOR}"),
                    None => continue,
                };
                let mut recovered = Recovered::new(&item, worker, &signs);
                recovered.fate = Fate::WouldFree;
                if !options.dry_run {
                    (recovered.rescued, recovered.fate) =
                        self.delete_expired(&item, branch, &remote)?;
                }
                done.push(recovered);
            }
        }
        Ok(done)
    }

    /// Who made a branch, if that was a claim that was never released: its time was over, its
    /// worker was cut off, or an operator broke the lock alone. Whoever releases or frees an item
    /// takes the branch away in the same step.
    fn last_claim(&self, item: &ItemName, branch: &str) -> Result<Option<String>> {
        let query = AuditQuery { name: Some(item.lock()), limit: TRAIL, ..AuditQuery::default() };
        let mut trail = match wait(self.client.audit(&query)) {
            Err(error) if error.is_corrupt() => return Ok(None),
            trail => trail?,
        };
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
        let worker = Some(holder.holder.worker_id.clone());
        let mut recovered = Recovered::new(item, worker, signs);
        let reason = holder.holder.reason.as_deref().unwrap_or_default();
        let branch = reason.split(" (claim ").next().unwrap_or_default();
        let checkout = note.and_then(|note| self.repo.checkout(&note.id));
        let has_worktree = note.is_some_and(|note| note.worktree.is_some());
        let local = match options.dry_run {
            false => self.local_tips(item, branch, checkout.as_ref(), has_worktree)?,
            true => [None, None],
        };
        for _ in 0..ATTEMPTS {
            let remote = self.repo.look()?;
            let tip = remote.branches.get(branch);
            if options.dry_run {
                recovered.fate = Fate::WouldFree;
                return Ok(recovered);
            }
            let [head, mine] = &local;
            let tips = [head.as_ref(), mine.as_ref(), tip];
            recovered.rescued = self.rescue(item, &remote, &tips, branch)?;
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
                    if has_worktree {
                        let safe: Vec<_> = tips.into_iter().flatten().collect();
                        recovered.leftovers =
                            self.put_away(note, branch, checkout.as_ref(), &safe)?;
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
    pub(super) fn rescue(
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
}

impl Recovered {
    pub(super) fn new(item: &ItemName, worker: Option<String>, signs: &str) -> Self {
        Self {
            item: item.clone(),
            worker,
            signs: signs.to_owned(),
            fate: Fate::Changed,
            rescued: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    pub(super) fn put_away(&mut self, cleared: Cleared) {
        self.fate = Fate::CleanedUp;
        (self.rescued, self.leftovers) = (cleared.rescued, cleared.leftovers);
    }
}

impl Recover {
    pub(super) fn is_about(&self, item: &ItemName) -> bool {
        let named = |name: &String| {
            name == item.as_str() || item.split_stamp().is_some_and(|(front, _)| front == name)
        };
        self.items.is_empty() || self.items.iter().any(named)
    }
}
