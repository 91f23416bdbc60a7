//! How a claim ends: the work comes to main and the item moves, or the work is kept elsewhere.

use std::time::Duration;

use sprag_core::entropy::{Entropy, OsEntropy};
use sprag_git::RefChange;
use sprag_ledger::{Change, Concluded, New, Oid, RefName};

use super::claim::GitClaim;
use super::wait;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::{Place, State};
use crate::name::ItemName;
use crate::note::Note;
use crate::repo::{Edit, Merged, Remote, branch_ref};
use crate::task::{Finished, Leftover, Outcome};
use crate::telemetry;

/// How often the work is put on top of what others pushed meanwhile.
const ATTEMPTS: u32 = 100;
/// How often a remote is asked again that does not answer.
const PATIENCE: u32 = 5;

/// What is to become of the item.
#[derive(Clone, Debug)]
enum Goal {
    Advance(Option<String>),
    Resume(Option<String>),
    Pend(String),
}

/// What was made to be the next commit of main.
struct Landing {
    commit: Oid,
    item: ItemName,
    to: Place,
}

impl GitClaim {
    pub(super) fn conclude(self, outcome: Outcome) -> Result<Finished> {
        let finished = match outcome {
            Outcome::Done { category } => self.land(&Goal::Advance(category)),
            Outcome::Resumed { category } => self.land(&Goal::Resume(category)),
            Outcome::Pending { question } => self.land(&Goal::Pend(question)),
            Outcome::Released | Outcome::Failed { .. } => self.let_go(true),
        };
        telemetry::ended(&finished);
        finished
    }

    /// Brings the work to main, or keeps it and says where.
    fn land(mut self, goal: &Goal) -> Result<Finished> {
        let error = match self.try_land(goal) {
            Ok(mut finished) => {
                let merged: Vec<_> = finished.merged.iter().collect();
                finished.leftovers = self.clean_up(&merged);
                return Ok(finished);
            }
            Err(error) => error,
        };
        let here = self.checkout().map(|checkout| checkout.path.display().to_string());
        // Whoever made the claim stand by itself can try again; the claim stays.
        if self.guard.is_none() && error.kind() != ErrorKind::Lost {
            return Err(match here {
                Some(here) => error.fact("work", format!("in {here}, the claim stays")),
                None => error,
            });
        }
        let name = self.task.item.name.clone();
        let remote = self.source.repo.remote_name().to_owned();
        match self.let_go(error.kind() != ErrorKind::Lost) {
            Ok(Finished { left_on, leftovers, .. }) => {
                let kept =
                    |error: Error, leftover: &Leftover| error.fact("left", leftover.to_string());
                let error = leftovers.iter().fold(error, kept);
                let Some(branch) = left_on else { return Err(error) };
                let fetch = format!("git fetch {} {branch}", remote);
                Err(error
                    .fact("work", format!("kept on branch {branch}"))
                    .next("look at it", fetch))
            }
            Err(_) => {
                let error = match here {
                    Some(here) => error.fact("work", format!("kept in {here}")),
                    None => error,
                };
                Err(error.next("clear it up later", format!("sprag work recover {name}")))
            }
        }
    }

    fn try_land(&mut self, goal: &Goal) -> Result<Finished> {
        let message = format!("work: {} - {}", self.note.branch, self.task.item.name);
        self.refuse_other_worktree()?;
        self.refuse_half_merge()?;
        let saved = self.newest(self.save(&message)?)?;
        self.refuse_unpushed_submodules(saved.as_ref())?;
        let mut upload: Option<Oid> = None;
        let mut tried: Option<Landing> = None;
        for attempt in 0..ATTEMPTS {
            if let Some(guard) = &self.guard {
                guard.ensure_valid()?;
            }
            let turn = self.source.repo.landing_turn()?;
            let remote = self.source.repo.look()?;
            let tip = self.tip(&remote, saved.as_ref())?;
            // The answer to an earlier attempt may have been lost.
            if let Some(landing) = tried.take()
                && self.source.repo.is_ancestor(&landing.commit, &remote.main)?
            {
                return Ok(self.finished(landing, tip.as_ref()));
            }
            let landing = self.prepare(&remote, tip.as_ref(), goal)?;
            self.upload(&mut upload, &landing.commit)?;
            let done = self.swap(&remote, &landing.commit);
            drop(turn);
            match done {
                Ok(Concluded::Done) => return Ok(self.finished(landing, tip.as_ref())),
                Ok(Concluded::Lost(_)) | Err(_) if self.is_on_main(&landing.commit) => {
                    return Ok(self.finished(landing, tip.as_ref()));
                }
                Ok(Concluded::Lost(loss)) => {
                    self.drop_upload(&mut upload);
                    return Err(self.lost(&loss.to_string()));
                }
                Ok(Concluded::InTheWay(_)) => {}
                Err(error) if error.kind() == ErrorKind::Unavailable && attempt < PATIENCE => {}
                Err(error) => return Err(self.main_refused(error, &mut upload)),
            }
            tried = Some(landing);
            pause(attempt);
        }
        self.drop_upload(&mut upload);
        let message = format!("{} changed again and again: try later", self.source.repo.main());
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Whether a commit has come to main.
    fn is_on_main(&self, commit: &Oid) -> bool {
        let repo = &self.source.repo;
        let remote = repo.look();
        remote.and_then(|remote| repo.is_ancestor(commit, &remote.main)).unwrap_or(false)
    }

    fn finished(&self, landing: Landing, tip: Option<&Oid>) -> Finished {
        let Landing { commit, item, to } = landing;
        let commits = tip.map_or(0, |tip| self.source.repo.count(&self.note.base, tip));
        let from = self.place().clone();
        let leftovers = Vec::new();
        Finished { item, from, to, commits, left_on: None, merged: Some(commit), leftovers }
    }

    fn lost(&self, why: &str) -> Error {
        let name = &self.task.item.name;
        let message = format!("the claim on {name} was lost: {why}; nothing of it came to main");
        let remote = self.source.repo.remote_name();
        Error::new(ErrorKind::Lost, message)
            .next("see who has it now", format!("sprag show -S git:{remote} {}", name.lock()))
    }

    /// What is in the claim's folder may be the user's own by now; it is not merged unasked.
    fn refuse_other_worktree(&self) -> Result<()> {
        let Some(path) = &self.note.worktree else { return Ok(()) };
        if self.checkout().is_some() || !path.join(".git").exists() {
            return Ok(());
        }
        let (here, branch) = (path.display(), &self.note.branch);
        let push = format!("git -C {here} push {} HEAD:{branch}", self.source.repo.remote_name());
        let message = format!("{here} is not the worktree of this claim any more");
        Err(Error::new(ErrorKind::Conflict, message)
            .next("bring its commits to the claim", push)
            .next("then give the folder another place", format!("git worktree move {here} PATH")))
    }

    /// Whoever merges by hand has to finish that first: there may be marks of conflicts in files.
    fn refuse_half_merge(&self) -> Result<()> {
        let Some(checkout) = self.checkout() else { return Ok(()) };
        let Some(operation) = checkout.unfinished() else { return Ok(()) };
        let here = checkout.path.display();
        let finish = match operation {
            "merge" => format!("git -C {here} commit --all"),
            _ => format!("git -C {here} {operation} --continue"),
        };
        let message = format!("a {operation} in {here} is not finished");
        Err(Error::new(ErrorKind::Conflict, message)
            .next("finish it", finish)
            .next("or give it up", format!("git -C {here} {operation} --abort")))
    }

    /// On main, a commit of a submodule that nobody else can fetch would be of no use.
    fn refuse_unpushed_submodules(&self, tip: Option<&Oid>) -> Result<()> {
        let (Some(checkout), Some(tip)) = (self.checkout(), tip) else { return Ok(()) };
        let unpushed = self.source.repo.unpushed_submodules(&checkout, &self.note.base, tip)?;
        let Some(first) = unpushed.first() else { return Ok(()) };
        let (shown, inner) = (first.display(), checkout.path.join(first));
        let message = format!("the repository {shown} has commits that none of its remotes has");
        Err(Error::new(ErrorKind::Conflict, message)
            .next("push them", format!("git -C {} push", inner.display())))
    }

    /// Commits what is in the worktree. Gives back where its HEAD is then, and where the claim's
    /// branch is: a worker may have left it, or the worktree.
    pub(super) fn save(&self, message: &str) -> Result<[Option<Oid>; 2]> {
        if self.note.worktree.is_none() {
            return Ok([None, None]);
        }
        let repo = &self.source.repo;
        let head = match self.checkout() {
            Some(checkout) => repo.save(&checkout, message)?,
            None => None,
        };
        let branch = repo.branch(&self.note.branch)?.map(|branch| branch.tip);
        Ok([head, branch])
    }

    /// Of two commits the one that has the other in it.
    fn newest(&self, tips: [Option<Oid>; 2]) -> Result<Option<Oid>> {
        let (head, branch) = match tips {
            [Some(head), Some(branch)] => (head, branch),
            [head, branch] => return Ok(head.or(branch)),
        };
        let repo = &self.source.repo;
        if repo.is_ancestor(&branch, &head)? {
            return Ok(Some(head));
        }
        if repo.is_ancestor(&head, &branch)? {
            return Ok(Some(branch));
        }
        let (here, name) = (self.task.directory.display(), &self.note.branch);
        let message = format!("{here} is not on branch {name}, and both have commits of their own");
        let error = Error::new(ErrorKind::Conflict, message);
        if self.guard.is_some() {
            return Err(error);
        }
        Err(error.next("bring them together", format!("git -C {here} merge {name}")))
    }

    /// The newest work: in the worktree, or what was pushed to the branch by hand.
    fn tip(&self, remote: &Remote, saved: Option<&Oid>) -> Result<Option<Oid>> {
        let repo = &self.source.repo;
        let branch = &self.note.branch;
        let pushed = remote.branches.get(branch).filter(|tip| **tip != self.note.at);
        let Some(pushed) = pushed else { return Ok(saved.cloned()) };
        repo.fetch(pushed, branch)?;
        match saved {
            None => Ok(Some(pushed.clone())),
            Some(saved) if repo.is_ancestor(pushed, saved)? => Ok(Some(saved.clone())),
            Some(saved) if repo.is_ancestor(saved, pushed)? => Ok(Some(pushed.clone())),
            Some(_) => {
                let message = format!("branch {branch} has commits that the worktree has not");
                let here = self.task.directory.display();
                let pull =
                    format!("git -C {here} pull --no-rebase {} {branch}", repo.remote_name());
                Err(Error::new(ErrorKind::Conflict, message).next("bring them together", pull))
            }
        }
    }

    /// Makes what is to be the next commit of main.
    fn prepare(&self, remote: &Remote, tip: Option<&Oid>, goal: &Goal) -> Result<Landing> {
        let (repo, folder) = (&self.source.repo, &self.note.path);
        let (main, name) = (&remote.main, &self.task.item.name);
        if repo.files(main, folder)?.is_empty() {
            let message = format!("{name} is not in {folder} any more: somebody moved it by hand");
            return Err(Error::new(ErrorKind::Conflict, message)
                .next("see where it is", format!("sprag work ls {name}")));
        }
        let base = &self.note.base;
        let tip = tip.filter(|tip| *tip != base);
        let merged = match tip {
            None => main.clone(),
            Some(tip) if main == base => repo.tree_of(tip)?,
            Some(tip) => match repo.merge(main, tip)? {
                Merged::Tree(tree) => tree,
                Merged::Conflict(files) => return Err(self.conflict(&files)),
            },
        };
        let (here, to) = self.target(&merged, goal)?;
        let (item, edits) = self.moves(&merged, &here, &to, goal)?;
        let subject = format!("work: {to} - {item}");
        let subject = match goal {
            Goal::Pend(question) if !question.is_empty() => format!("{subject}\n\n{question}"),
            _ => subject,
        };
        let tree = if edits.is_empty() { merged.clone() } else { repo.edit(&merged, &edits)? };
        // What the branch looks like with the move, apart from what others did.
        let side = match tip {
            None => repo.commit(&tree, &[main], &subject)?,
            Some(tip) if edits.is_empty() => tip.clone(),
            Some(tip) if main == base => repo.commit(&tree, &[tip], &subject)?,
            Some(tip) => {
                let alone = repo.edit(&repo.tree_of(tip)?, &edits)?;
                repo.commit(&alone, &[tip], &subject)?
            }
        };
        let merge = format!("Merge branch '{}'\n\n{subject}", self.note.branch);
        let commit = repo.commit(&tree, &[main, &side], &merge)?;
        Ok(Landing { commit, item, to })
    }

    fn conflict(&self, files: &[String]) -> Error {
        let repo = &self.source.repo;
        let (name, main) = (&self.task.item.name, repo.main());
        let shown: Vec<_> = files.iter().take(5).map(String::as_str).collect();
        let message = format!("the work on {name} conflicts with what others brought to {main}");
        let error = Error::new(ErrorKind::Conflict, message).fact("files", shown.join(", "));
        if self.guard.is_none() && self.task.has_worktree {
            let here = self.task.directory.display();
            let merge = format!("git -C {here} pull --no-rebase {} {main}", repo.remote_name());
            return error
                .next("bring them together", merge)
                .next("then", format!("sprag work done {name}"));
        }
        error
    }

    /// Where the item is in the merged tree, and where it is to be.
    fn target(&self, merged: &Oid, goal: &Goal) -> Result<(Place, Place)> {
        let (flow, name) = (&self.source.flow, &self.task.item.name);
        let from = self.place();
        let here = self.whereabouts(merged)?;
        let moved = here != *from;
        let given = |category: &Option<String>| {
            let here = here.category.clone();
            category.clone().or(here).or_else(|| self.source.category.clone())
        };
        match goal {
            Goal::Pend(_) if from.state.is_pending() => {
                Err(Error::input(format!("{name} is pending already")))
            }
            Goal::Pend(_) => Ok((here.clone(), here.pending())),
            Goal::Resume(category) => {
                let to = flow.resume(from, self.task.item.left.as_ref(), category.as_deref())?;
                Ok((here, to))
            }
            // The command has moved it itself.
            Goal::Advance(_) if moved && here.state.is_pending() => Ok((here.clone(), here)),
            Goal::Advance(category) if from.state.is_pending() => {
                let (left, category) = (self.task.item.left.as_ref(), given(category));
                let to = flow.resume(from, left, category.as_deref())?;
                Ok((here, to))
            }
            Goal::Advance(category) => {
                let to = flow.advance(from, given(category).as_deref())?;
                let next = flow.step(&here.state).map(|step| &step.to);
                if moved && here.state != to.state && next != Some(&to.state) {
                    let message = format!("the command moved {name} to {here}, not to {to}");
                    return Err(Error::input(message));
                }
                Ok((here, to))
            }
        }
    }

    /// Where the item is in a tree: where it was, or where the command moved it.
    fn whereabouts(&self, tree: &Oid) -> Result<Place> {
        let (source, name) = (&self.source, &self.task.item.name);
        if !source.repo.files(tree, &self.note.path)?.is_empty() {
            return Ok(self.place().clone());
        }
        let files = source.repo.files(tree, &source.root)?;
        let place = files.iter().find_map(|file| {
            let below = file.path.strip_prefix(&source.root)?.strip_prefix('/')?;
            let parts: Vec<_> = below.split('/').collect();
            let (place, found, depth) = source.flow.locate(&parts)?;
            (found == name.as_str() && parts.len() > depth).then_some(place)
        });
        place.ok_or_else(|| {
            let message = format!("the folder of {name} is gone: it was {}", self.note.path);
            Error::new(ErrorKind::Conflict, message)
        })
    }

    /// What has to be changed in the tree, and the item's new name.
    fn moves(
        &self,
        tree: &Oid,
        here: &Place,
        to: &Place,
        goal: &Goal,
    ) -> Result<(ItemName, Vec<Edit>)> {
        let (source, name) = (&self.source, &self.task.item.name);
        let stamps = source.flow.step(&self.place().state).is_some_and(|step| step.stamps);
        let item = match goal {
            Goal::Advance(_)
                if stamps && !to.state.is_pending() && name.split_stamp().is_none() =>
            {
                let [.., a, b, c, d] = OsEntropy.next_u128().to_be_bytes();
                name.stamped(u32::from_be_bytes([a, b, c, d]))
            }
            _ => name.clone(),
        };
        let (from, path) = (here.path(&source.root, name), to.path(&source.root, &item));
        let mut edits = Vec::new();
        if from != path {
            if !source.repo.files(tree, &path)?.is_empty() {
                let message = format!("{path} is there already");
                return Err(Error::new(ErrorKind::Conflict, message)
                    .next("rename it", format!("git mv {path} {path}-2")));
            }
            edits.push(Edit::Move { from: from.clone(), to: path.clone() });
        }
        let was_pending = self.place().state.is_pending() || here.state.is_pending();
        if to.state.is_pending() || was_pending {
            let left = to.state.is_pending().then_some(&self.place().state);
            edits.extend(self.left(tree, &from, &path, left)?);
        }
        Ok((item, edits))
    }

    /// What has to be changed in the note of an item that becomes pending, or is it no more.
    fn left(&self, tree: &Oid, from: &str, to: &str, left: Option<&State>) -> Result<Option<Edit>> {
        let repo = &self.source.repo;
        let file = format!("{from}/{}", Note::FILE);
        let files = repo.files(tree, from)?;
        let blob = files.iter().find(|one| one.path == file).map(|one| &one.blob);
        let text = match blob {
            Some(blob) => repo.texts(&[blob])?.pop().unwrap_or_default(),
            None => String::new(),
        };
        let path = format!("{to}/{}", Note::FILE);
        Ok(match Note::with_left(&text, left) {
            Some(text) => Some(Edit::Write { path, text }),
            None if blob.is_some() => Some(Edit::Remove { path }),
            None => None,
        })
    }

    /// Brings a commit to the remote, where nobody looks. Then references can be swapped to it by
    /// whoever does not have it.
    fn upload(&self, before: &mut Option<Oid>, commit: &Oid) -> Result<()> {
        let change = RefChange {
            name: self.upload_ref(),
            old: before.clone(),
            new: Some(commit.clone()),
            unique: true,
        };
        self.source.repo.push(&change)?;
        *before = Some(commit.clone());
        Ok(())
    }

    fn upload_ref(&self) -> RefName {
        RefName::new(format!("refs/sprag/uploads/{}", self.note.id)).expect("digits are a name")
    }

    /// It will not be needed; whatever is left of it is removed by `recover`.
    fn drop_upload(&self, upload: &mut Option<Oid>) {
        if let Some(old) = upload.take() {
            let change =
                RefChange { name: self.upload_ref(), old: Some(old), new: None, unique: true };
            drop(self.source.repo.push(&change));
        }
    }

    /// The one step: main has the work, the branch is gone and the lock is free. Or nothing is.
    fn swap(&self, remote: &Remote, commit: &Oid) -> Result<Concluded> {
        let mut along = vec![
            Change {
                name: self.source.repo.main_ref(),
                old: Some(remote.main.clone()),
                new: New::At(commit.clone()),
            },
            Change { name: self.upload_ref(), old: Some(commit.clone()), new: New::Nowhere },
        ];
        along.extend(self.branch_gone(remote));
        let (lock, lease) = (self.task.item.name.lock(), self.note.lease);
        Ok(wait(self.source.store.release_with(&lock, lease, along))?)
    }

    pub(super) fn branch_gone(&self, remote: &Remote) -> Option<Change> {
        let tip = remote.branches.get(&self.note.branch)?;
        let name = branch_ref(&self.note.branch)?;
        Some(Change { name, old: Some(tip.clone()), new: New::Nowhere })
    }

    fn main_refused(&self, error: Error, upload: &mut Option<Oid>) -> Error {
        if error.kind() != ErrorKind::Refused {
            return error;
        }
        self.drop_upload(upload);
        let repo = &self.source.repo;
        let (remote, main) = (repo.remote_name(), repo.main());
        Error::new(ErrorKind::Refused, format!("{remote} does not let {main} be changed"))
            .fact("said", error.message().to_owned())
            .fact(
                "allow it",
                format!("pushes of this account to {main}, or merge the branch below"),
            )
    }
}

/// Lets others go first: the more often somebody was faster, the longer. With dozens who want to land,
/// those who do not try now make it possible for one who does.
fn pause(attempt: u32) {
    const LONGEST: f64 = 8.0;
    let seconds = (0.05 * 1.5_f64.powi(attempt.min(30).cast_signed())).min(LONGEST);
    let share = 0.5 + 0.5 * OsEntropy.next_fraction();
    std::thread::park_timeout(Duration::from_secs_f64(seconds * share));
}
