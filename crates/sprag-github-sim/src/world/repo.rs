//! [`Repo`]: a repository with its issues, comments and git data.

use std::collections::{BTreeMap, BTreeSet};

use super::git::{Commit, EMPTY_TREE, Git, Person, Update};
use super::issue::{Comment, CommentState, Fate, Issue, IssueState, Pull};
use super::user::Permission;
use super::versions::Versions;
use crate::hash::hash;
use crate::stamp::Stamp;

/// A repository.
#[derive(Clone, Debug)]
pub struct Repo {
    pub(crate) id: u64,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) created: Stamp,
    pub(crate) archived: bool,
    pub(crate) private: bool,
    pub(crate) has_issues: bool,
    /// By login in lower case.
    pub(crate) collaborators: BTreeMap<String, Permission>,
    /// With the number that labels have.
    pub(crate) labels: BTreeMap<String, u64>,
    pub(crate) issues: BTreeMap<u64, Issue>,
    pub(crate) comments: BTreeMap<u64, Comment>,
    /// Which comments an issue has.
    pub(crate) talk: BTreeMap<u64, BTreeSet<u64>>,
    /// Its git data.
    pub git: Git,
}

impl Repo {
    pub(crate) fn new(id: u64, owner: &str, name: &str, now: Stamp) -> Self {
        Self {
            id,
            owner: owner.to_owned(),
            name: name.to_owned(),
            created: now,
            archived: false,
            private: false,
            has_issues: true,
            collaborators: BTreeMap::from([(owner.to_lowercase(), Permission::Admin)]),
            labels: BTreeMap::new(),
            issues: BTreeMap::new(),
            comments: BTreeMap::new(),
            talk: BTreeMap::new(),
            git: Git::default(),
        }
    }

    /// The first commit, on the branch `main`.
    pub(crate) fn push_first(&mut self, now: Stamp) {
        let person =
            Person { name: self.owner.clone(), email: "octocat@github.com".into(), date: now };
        // A tree with one file; what is in it does not matter here.
        let tree = hash("readme");
        self.git.trees.extend([tree.clone(), EMPTY_TREE.to_owned()]);
        let after = self.git.add_commit(Commit {
            tree,
            parents: Vec::new(),
            message: "Initial commit".into(),
            author: person.clone(),
            committer: person,
            arrived: Stamp::BEGINNING,
        });
        let name = "refs/heads/main".to_owned();
        let update = Update { name, before: None, after: Some(after), force: false };
        let pushed = self.git.update(Stamp::BEGINNING, &[update]);
        debug_assert!(pushed.is_ok(), "an empty repository refuses nothing: {pushed:?}");
    }

    /// `owner/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// An issue or pull request.
    pub fn issue(&self, number: u64) -> Option<&Issue> {
        self.issues.get(&number)
    }

    /// All issues and pull requests, in the order of their numbers.
    pub fn issues(&self) -> impl Iterator<Item = &Issue> {
        self.issues.values()
    }

    /// The comments an issue has now, in the order of their ids.
    pub fn comments(&self, issue: u64) -> Vec<&Comment> {
        let ids = self.talk.get(&issue).into_iter().flatten();
        let comments = ids.filter_map(|id| self.comments.get(id));
        comments.filter(|comment| comment.now().is_some()).collect()
    }

    pub(crate) fn permission(&self, login: &str) -> Option<Permission> {
        let given = self.collaborators.get(&login.to_lowercase()).copied();
        given.or(if self.private { None } else { Some(Permission::Read) })
    }

    /// Whether an account can be assigned to issues.
    pub(crate) fn is_assignable(&self, login: &str) -> bool {
        self.permission(login).is_some_and(|permission| permission >= Permission::Triage)
    }

    pub(crate) fn add_issue(
        &mut self,
        id: u64,
        (seen_from, now): (Stamp, Stamp),
        (author, title, body): (&str, &str, &str),
        pull: Option<Pull>,
    ) -> u64 {
        let number = self.issues.keys().next_back().map_or(1, |last| last + 1);
        let state = IssueState {
            title: title.to_owned(),
            body: body.to_owned(),
            open: true,
            reason: None,
            assignees: Vec::new(),
            labels: Vec::new(),
            locked: false,
            comments: 0,
            fate: Fate::Here,
            updated: now,
            closed: None,
        };
        let versions = Versions::new(seen_from, state);
        let issue = Issue { id, number, author: author.to_owned(), created: now, pull, versions };
        self.issues.insert(number, issue);
        number
    }

    /// Changes an issue, which makes it newer.
    pub(crate) fn edit_issue(
        &mut self,
        number: u64,
        now: Stamp,
        change: impl FnOnce(&mut IssueState),
    ) {
        if let Some(issue) = self.issues.get_mut(&number) {
            issue.versions.edit(now, |state| {
                change(state);
                state.updated = now;
            });
        }
    }

    pub(crate) fn add_comment(
        &mut self,
        id: u64,
        issue: u64,
        now: Stamp,
        author: &str,
        body: &str,
    ) {
        let state = CommentState { body: body.to_owned(), updated: now };
        let versions = Versions::new(now, Some(state));
        let author = author.to_owned();
        self.comments.insert(id, Comment { id, issue, author, created: now, versions });
        self.talk.entry(issue).or_default().insert(id);
        self.edit_issue(issue, now, |state| state.comments += 1);
    }

    /// Changes the text of a comment, or deletes it.
    pub(crate) fn edit_comment(&mut self, id: u64, now: Stamp, body: Option<&str>) {
        let Some(comment) = self.comments.get_mut(&id) else { return };
        let issue = comment.issue;
        let state = body.map(|body| CommentState { body: body.to_owned(), updated: now });
        comment.versions.set(now, state);
        let gone = u64::from(body.is_none());
        self.edit_issue(issue, now, |state| state.comments -= gone);
    }

    /// The pull requests that will close an issue.
    pub(crate) fn closers(&self, issue: u64) -> impl Iterator<Item = &Issue> {
        let closes =
            move |pull: &Issue| pull.pull.as_ref().is_some_and(|pull| pull.closes.contains(&issue));
        self.issues.values().filter(move |pull| closes(pull))
    }
}
