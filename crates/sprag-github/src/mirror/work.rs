//! What the mirror's thread does.

use std::time::Duration;

use sprag_core::{LeaseId, Result};

use super::note::MARK;
use super::shown::{Shown, Stage};
use super::{Shared, Task, Why};
use crate::client::{Comment, Issue};
use crate::time;

/// How often a comment is looked for whose answer was lost.
const LOOK: Duration = Duration::from_millis(500);
/// How often GitHub is asked to change a comment if it does not answer.
const TRIES: u32 = 3;

impl Shared {
    /// Works until the mirror is dropped and everything is done.
    pub(super) fn work(&self) {
        while let Some(task) = self.next() {
            let lease = task.lease();
            let Some(mut shown) = self.board().shown.get(&lease).cloned() else { continue };
            let done = match task {
                // Who is gone again need not be shown.
                Task::Show(lease) if self.is_to_be_cleared(lease) => Ok(()),
                Task::Show(_) => self.show(&mut shown),
                Task::Beat(_) => self.look_after(&mut shown),
                Task::Clear(_) => {
                    shown.note.result = self.board().results.remove(&lease);
                    self.clear(&mut shown)
                }
            };
            if let Err(error) = &done {
                let issue = shown.issue;
                tracing::warn!(target: "sprag::github", issue, %error, "the lock is not shown on its issue");
            }
            self.settle(task, shown, done);
        }
    }

    fn is_to_be_cleared(&self, lease: LeaseId) -> bool {
        self.board().tasks.contains(&Task::Clear(lease))
    }

    fn settle(&self, task: Task, mut shown: Shown, done: Result<()>) {
        let lease = task.lease();
        shown.stage = match done {
            Ok(()) => Stage::Shown,
            Err(error) => Stage::Broken(Why::new(&error)),
        };
        let mut board = self.board();
        if matches!(task, Task::Clear(_)) {
            board.shown.remove(&lease);
        } else if let Some(place) = board.shown.get_mut(&lease) {
            *place = shown;
        }
        drop(board);
        self.news.notify_waiters();
    }

    fn show(&self, shown: &mut Shown) -> Result<()> {
        self.assign(shown)?;
        self.write(shown)
    }

    fn assign(&self, shown: &mut Shown) -> Result<()> {
        let Some(account) = self.client.account()? else { return Ok(()) };
        let issue = self.client.assign_issue(shown.issue, &account)?;
        shown.assigned = is_assigned(&issue, &account);
        if !shown.assigned {
            let issue = shown.issue;
            tracing::warn!(target: "sprag::github", issue, "GitHub ignored the assignee: its account may not be assigned here");
        }
        Ok(())
    }

    /// Writes the comment, over the one that is there if that is known.
    fn write(&self, shown: &mut Shown) -> Result<()> {
        let body = shown.note.to_comment();
        let known = shown.comment.as_ref().map(|(id, _)| *id);
        let hint = known.or_else(|| self.hints.get(shown.issue));
        let edit = |id: Option<u64>| id.map_or(Ok(None), |id| self.edit(id, &body));
        let mut edited = edit(hint)?;
        if edited.is_none() && shown.unsure {
            edited = edit(self.find(shown)?)?;
        }
        let comment = match edited {
            Some(comment) => comment,
            None => {
                // If the answer is lost it may be there all the same.
                (shown.unsure, shown.unanswered) = (true, true);
                self.client.add_comment(shown.issue, &body)?
            }
        };
        (shown.unsure, shown.unanswered) = (false, false);
        self.hints.put(shown.issue, comment.id);
        shown.comment = Some((comment.id, body));
        shown.refreshed = self.clock.now();
        Ok(())
    }

    /// Changes a comment; `None` if it is gone, or not ours to be changed. What is only not answered
    /// is asked for again, because a comment that may be there is not written twice.
    fn edit(&self, comment: u64, body: &str) -> Result<Option<Comment>> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.client.edit_comment(comment, body) {
                Ok(comment) => return Ok(Some(comment)),
                Err(error) if !error.is_indeterminate() => return Ok(None),
                Err(error) if tries == 0 || error.is_rate_limited() => return Err(error),
                Err(_) => std::thread::park_timeout(LOOK),
            }
        }
    }

    /// The newest comment of the lock that somebody wrote who may. It is only written over.
    fn find(&self, shown: &Shown) -> Result<Option<u64>> {
        let is_ours = |comment: &&Comment| comment.by_member && comment.body.contains(MARK);
        let mut left = if shown.unanswered { self.manner.lag } else { Duration::ZERO };
        loop {
            let comments = match self.client.list_comments(shown.issue) {
                Ok((comments, _)) => comments,
                Err(error) if error.is_unsupported() => return Ok(None),
                Err(error) => return Err(error),
            };
            let found = comments.iter().rev().find(is_ours).map(|comment| comment.id);
            if found.is_some() || left.is_zero() {
                return Ok(found);
            }
            // Counted, and not measured: a clock of a test may stand still.
            let pause = left.min(LOOK);
            std::thread::park_timeout(pause);
            left -= pause;
        }
    }

    /// Puts right what people changed, and refreshes the comment as often as we can afford.
    fn look_after(&self, shown: &mut Shown) -> Result<()> {
        if shown.comment.is_none() {
            return self.show(shown);
        }
        self.look_after_assignee(shown)?;
        if shown.revoked {
            return Ok(());
        }
        let every = self.manner.refresh[usize::from(!(self.ample)())];
        let due = self.clock.now().since(shown.refreshed) >= every;
        let changed = self.is_comment_changed(shown)?;
        if changed {
            let issue = shown.issue;
            tracing::warn!(target: "sprag::github", issue, "somebody changed the comment of the lock: it is written anew, and the lock is as it was");
        }
        if due || changed {
            shown.note.heartbeat_last = self.wall_clock();
            self.write(shown)?;
        }
        Ok(())
    }

    fn look_after_assignee(&self, shown: &mut Shown) -> Result<()> {
        let Some(account) = self.client.account()?.filter(|_| shown.assigned) else {
            return Ok(());
        };
        let settled = self.clock.now().since(shown.since) >= self.manner.settled;
        if is_assigned(&self.client.get_issue(shown.issue)?, &account) {
            shown.seen |= settled;
            return Ok(());
        }
        let issue = shown.issue;
        if self.manner.human_override && shown.seen {
            tracing::warn!(target: "sprag::github", issue, "somebody took the assignee away: the lock is released");
            shown.revoked = true;
            return Ok(());
        }
        tracing::warn!(target: "sprag::github", issue, "somebody took the assignee away: it is put back, and the lock is as it was");
        self.assign(shown)
    }

    fn is_comment_changed(&self, shown: &Shown) -> Result<bool> {
        let Some((id, body)) = &shown.comment else { return Ok(true) };
        match self.client.get_comment(*id) {
            // GitHub may change the ends of lines.
            Ok(Some(comment)) => Ok(comment.body.replace('\r', "").trim() != body.trim()),
            Ok(None) => Ok(true),
            Err(error) if error.is_unsupported() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Says that the work is done, and takes the assignee away.
    fn clear(&self, shown: &mut Shown) -> Result<()> {
        if shown.comment.is_some() || shown.note.result.is_some() {
            shown.note.released_at = Some(self.wall_clock());
            self.write(shown)?;
        }
        if let Some(account) = self.client.account()?.filter(|_| shown.assigned) {
            self.client.unassign_issue(shown.issue, &account)?;
        }
        Ok(())
    }

    fn wall_clock(&self) -> String {
        time::format(self.clock.unix_micros() / 1_000_000)
    }
}

/// GitHub does not mind the case of names.
fn is_assigned(issue: &Issue, account: &str) -> bool {
    issue.assignees.iter().any(|assignee| assignee.eq_ignore_ascii_case(account))
}
