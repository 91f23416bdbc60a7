//! [`GitHubClaim`]: an issue that is ours, from the swap of its lock's ref.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sprag_core::{Fence, LeaseId, LockGuard, Released, Strategy};
use sprag_github::Issue;

use super::{GitHubSource, item_name, lock_name, now};
use crate::board::Board;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::State;
use crate::item::Item;
use crate::name::ItemName;
use crate::repo::Slip;
use crate::source::{Claim, Claimed, How, Items, Purpose, Ready, Source, Wanted};
use crate::stats::{Counters, Stats};
use crate::task::{self, Finished, Outcome, Task};
use crate::telemetry;

/// How long to wait for the issue to show a claim that is going to stand by itself.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);
/// The longest text in bytes that a command is given, below the limit of 128 KiB for a variable.
const LONGEST: usize = 100_000;
/// How often an issue is looked at again while what was done to it becomes visible.
const LOOK: Duration = Duration::from_secs(1);

/// An issue that is ours. Dropped, it is released.
#[derive(Debug)]
pub struct GitHubClaim {
    pub(super) source: GitHubSource,
    pub(super) task: Task,
    pub(super) number: u64,
    pub(super) note: Note,
    pub(super) slip: Slip,
    /// `None` for a claim that another process made and left.
    pub(super) guard: Option<LockGuard>,
}

/// A claim that was made here, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) item: ItemName,
    pub(super) lease: LeaseId,
    pub(super) fence: Fence,
    /// Whether the claim outlives the process that made it.
    pub(super) detached: bool,
}

impl Source for GitHubSource {
    fn ready(&self, wanted: &Wanted) -> Result<Ready> {
        self.sift(wanted)
    }

    fn claim(&self, item: &Item, how: &How) -> Result<Claimed> {
        Ok(match self.try_claim(item, how)? {
            Ok(claim) => Claimed::Won(Box::new(claim)),
            Err(why) => Claimed::Passed(why),
        })
    }
}

impl Items for GitHubSource {
    fn claim_named(&self, name: &str, how: &How) -> Result<Box<dyn Claim>> {
        let number = Self::number(name)?;
        let issue = self.issue(number)?;
        let item = self.item(&issue)?;
        let held = |why: String| {
            Error::new(ErrorKind::Held, format!("{} cannot be claimed: {why}", item.name))
                .next("see who has what", "sprag work board")
        };
        if let Some(why) = self.unfit(&issue)? {
            return Err(held(why));
        }
        Ok(Box::new(self.try_claim(&item, how)?.map_err(held)?))
    }

    fn reopen(&self, name: &str) -> Result<Box<dyn Claim>> {
        let number = Self::number(name)?;
        let item = item_name(number)?;
        let none = |message: String| {
            Error::new(ErrorKind::NotClaimed, message).next("see who has what", "sprag work board")
        };
        let Some(mut slip) = self.inner.desk.slip(&item)? else {
            return Err(none(format!("a command on this machine works on {item} right now")));
        };
        let Some(note) = slip.read::<Note>() else {
            slip.remove();
            return Err(none(format!("{item} is not claimed here"))
                .next("claim it", format!("sprag work claim {item}")));
        };
        let lock = lock_name(number)?;
        let view = self.wait(self.inner.client.inspect(lock.as_str()))?;
        let Some(holder) = view.holders.iter().find(|holder| holder.lease == note.lease) else {
            slip.remove();
            return Err(self.lost(&item, "somebody else took it, or it ran out"));
        };
        self.inner.store.take_up(&lock, holder);
        let issue = self.issue(number)?;
        let task = self.task(&issue, note.fence)?;
        Ok(Box::new(GitHubClaim { source: self.clone(), task, number, note, slip, guard: None }))
    }

    fn claimed_in(&self, _: &Path) -> Option<ItemName> {
        let mut notes = self.inner.desk.notes::<Note>().ok()?;
        notes.retain(|note| note.detached);
        if notes.len() == 1 { notes.pop().map(|note| note.item) } else { None }
    }

    fn board(&self) -> Result<Board> {
        self.overview()
    }

    fn stats(&self) -> Result<Stats> {
        self.numbers()
    }

    fn state(&self, name: &str) -> Result<State> {
        Err(Self::no_states(name))
    }

    fn is_last(&self, _: &State) -> bool {
        false
    }

    fn shown(&self) -> String {
        format!("github://{}", self.inner.repo)
    }
}

impl GitHubSource {
    fn issue(&self, number: u64) -> Result<Issue> {
        let issue = self.github().get_issue(number).map_err(|error| {
            if !error.is_bad_input() {
                return Error::from(error);
            }
            let message = format!("{} has no issue {number}", self.inner.repo);
            Error::new(ErrorKind::Nothing, message).next("see what there is", "sprag work ls")
        })?;
        if issue.pull_request {
            return Err(Error::input(format!("{number} is a pull request, not an issue"))
                .next("see what there is", "sprag work ls"));
        }
        Ok(issue)
    }

    pub(super) fn task(&self, issue: &Issue, fence: Fence) -> Result<Task> {
        let about = task::Issue {
            number: issue.number,
            repo: self.inner.repo.clone(),
            // Anybody may have written it, and it is shown on terminals.
            title: issue.title.chars().filter(|c| !c.is_control()).collect(),
            body: fit(&issue.body),
            labels: issue.labels.clone(),
        };
        Ok(Task {
            item: self.item(issue)?,
            branch: None,
            fence,
            directory: self.inner.directory.clone(),
            has_worktree: false,
            folder: None,
            issue: Some(about),
            leftovers: Vec::new(),
        })
    }

    /// Tries once; why not, if it cannot be had.
    fn try_claim(&self, item: &Item, how: &How) -> Result<Result<GitHubClaim, String>> {
        refuse(how)?;
        let number = Self::number(item.name.as_str())?;
        if let Some(pull) = self.pulls(number)?.first() {
            return Ok(Err(format!("open PR #{pull}")));
        }
        let Some(mut slip) = self.inner.desk.slip(&item.name)? else {
            return Ok(Err("claimed: by another process of this machine".to_owned()));
        };
        if let Some(before) = slip.read::<Note>()
            && let Some(why) = self.clear_away(number, &before)?
        {
            return Ok(Err(why));
        }
        let (lease, fence) = (LeaseId::from_u128(0), Fence::ZERO);
        let mut note = Note { item: item.name.clone(), lease, fence, detached: false };
        slip.write(&note)?;
        let guard = match self.acquire(number, how) {
            Ok(guard) => guard,
            Err(error) if error.is_held() || error.is_timeout() => {
                slip.remove();
                Counters::count(&self.inner.desk, false);
                return Ok(Err(format!("lost race to {}", self.owner(number))));
            }
            Err(error) => {
                // Whether it was taken is not known; if it was, the client gives it back.
                slip.remove();
                return Err(error.into());
            }
        };
        Counters::count(&self.inner.desk, true);
        (note.lease, note.fence) = (guard.lease(), guard.fence());
        slip.write(&note)?;
        let issue = match self.confirm(number, &guard) {
            Ok(Ok(issue)) => issue,
            given_up => {
                self.wait(guard.release())?;
                slip.remove();
                return given_up.map(|why| Err(why.err().unwrap_or_default()));
            }
        };
        self.inner.store.present(guard.lease());
        let task = self.task(&issue, note.fence)?;
        Ok(Ok(GitHubClaim { source: self.clone(), task, number, note, slip, guard: Some(guard) }))
    }

    /// What a process of this machine left behind; why it is still in the way, if it is.
    fn clear_away(&self, number: u64, before: &Note) -> Result<Option<String>> {
        let lock = lock_name(number)?;
        if before.lease == LeaseId::from_u128(0) {
            return Ok(None);
        }
        let view = self.wait(self.inner.client.inspect(lock.as_str()))?;
        let Some(holder) = view.holders.iter().find(|holder| holder.lease == before.lease) else {
            return Ok(None);
        };
        if before.detached {
            return Ok(Some(format!("claimed here before: sprag work release {}", before.item)));
        }
        // Its process is gone, and all that it started: they had the slip locked.
        self.inner.store.take_up(&lock, holder);
        let told = "its process on this machine was gone";
        self.wait(self.inner.store.conclude(before.lease, told, SHOWN_WITHIN));
        self.wait(self.inner.client.release_lease(lock.as_str(), before.lease))?;
        Ok(None)
    }

    fn acquire(&self, number: u64, how: &How) -> sprag_core::Result<LockGuard> {
        let request = self.inner.client.lock(format!("issue-{number}").as_str());
        let steal = Strategy::StealStale { after: Duration::ZERO };
        let request = request
            .ttl(how.first_ttl(self.inner.spans.run_ttl))
            .strategy(steal)
            .no_wait()
            .own_party();
        self.wait(request.holder(self.inner.holder.clone()).acquire())
    }

    /// Looks again at an issue whose lock we have now; why it is not for us, if it is not.
    ///
    /// If somebody held it before, what that one did may not be visible yet, so that an issue that
    /// looks open may be closed. If nobody did, nothing can be hidden.
    fn confirm(&self, number: u64, guard: &LockGuard) -> Result<Result<Issue, String>> {
        let until = match guard.fence().get() {
            0 | 1 => now(),
            _ => now().plus(self.inner.spans.lag),
        };
        loop {
            let at = now();
            let issue = self.issue(number)?;
            if let Some(why) = self.unfit(&issue)? {
                return Ok(Err(format!("{why} meanwhile")));
            }
            guard.ensure_valid()?;
            if at >= until {
                return Ok(Ok(issue));
            }
            let pause = until.since(at).min(LOOK);
            self.wait(async { tokio::time::sleep(pause).await });
        }
    }

    /// Who has an issue, for people.
    fn owner(&self, number: u64) -> String {
        let view = self.wait(self.inner.client.inspect(format!("issue-{number}").as_str())).ok();
        let holder = view.and_then(|view| view.holders.into_iter().next());
        holder.map_or_else(|| "somebody else".to_owned(), |holder| holder.holder.worker_id)
    }

    pub(super) fn lost(&self, item: &ItemName, why: &str) -> Error {
        let message = format!("the claim on {item} was lost: {why}; nothing was changed");
        let show = format!("sprag show -S {} {item}", Items::shown(self));
        Error::new(ErrorKind::Lost, message).next("see who has it now", show)
    }
}

/// A text as a variable of a command can be: the operating system has none with this in it, and
/// none that is longer.
fn fit(text: &str) -> String {
    let mut text = text.replace('\0', "");
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

/// What issues cannot do.
fn refuse(how: &How) -> Result<()> {
    if how.worktree {
        let message = "--worktree is for items in a git repository: for issues the command makes \
                       its own, with `git worktree add`";
        return Err(Error::input(message));
    }
    match how.purpose {
        Purpose::Step => Ok(()),
        Purpose::Pend => Err(Error::input("an issue cannot be made pending: give it a label")),
    }
}

impl Claim for GitHubClaim {
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
        let finished = self.conclude(outcome);
        telemetry::ended(&finished);
        finished
    }

    fn keep(mut self: Box<Self>, ttl: Duration) -> Result<Task> {
        let source = self.source.clone();
        if let Some(mut guard) = self.guard.take() {
            source.wait(guard.extend(ttl))?;
            let shown = source.inner.store.shown(guard.lease());
            // What is not shown now is shown when it is released.
            drop(source.wait(async { tokio::time::timeout(SHOWN_WITHIN, shown).await }));
            source.wait(guard.into_ticket())?;
        }
        self.note.detached = true;
        self.slip.write(&self.note)?;
        Ok(self.task)
    }
}

impl GitHubClaim {
    /// Gives the lock back; whether it was still ours.
    pub(super) fn release(&mut self) -> Result<bool> {
        let released = match self.guard.take() {
            Some(guard) => self.source.wait(guard.release())?,
            None => {
                let lock = lock_name(self.number)?;
                let client = &self.source.inner.client;
                self.source.wait(client.release_lease(lock.as_str(), self.note.lease))?
            }
        };
        Ok(!matches!(released, Released::AlreadyLost(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, fit};

    #[test]
    fn every_text_of_an_issue_can_be_a_variable() {
        assert_eq!(fit("a\0b"), "ab");
        let long = fit(&"é".repeat(LONGEST));
        assert!(long.len() <= LONGEST && long.len() > LONGEST - 2, "{}", long.len());
    }
}
