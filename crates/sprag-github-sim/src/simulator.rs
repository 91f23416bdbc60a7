//! [`Simulator`]: a GitHub on this machine, gone with the test that started it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::SimClock;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::faults::{Fault, FaultPlan, Target};
use crate::http::Server;
use crate::limits::Limits;
use crate::openapi::{Checker, Violation};
use crate::stamp::Stamp;
use crate::world::issue::{Fate, Pull};
use crate::world::{Access, Permission, Repo, World};

/// How a simulator is to be started.
#[derive(Clone, Debug)]
pub struct Setup {
    seed: u64,
    speed: u32,
    socket: Option<PathBuf>,
    checked: bool,
}

impl Setup {
    /// With a clock that stands still. What happens by chance is decided by the seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, speed: 0, socket: None, checked: false }
    }

    /// Lets the clock run: 1 for real time, more for haste.
    #[must_use]
    pub const fn speed(mut self, speed: u32) -> Self {
        self.speed = speed;
        self
    }

    /// Listens on a Unix socket, too.
    #[must_use]
    pub fn socket(mut self, path: &Path) -> Self {
        self.socket = Some(path.to_owned());
        self
    }

    /// Compares every request and every answer with GitHub's own description; what differs makes
    /// the test fail in the end. See [`Checker::installed`].
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.checked = true;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// If it cannot listen, or GitHub's description is wanted and missing.
    pub fn start(self) -> Simulator {
        let listener = Server::bind().expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let url = format!("http://{address}");
        let clock = Arc::new(SimClock::new(self.speed));
        let checker = if self.checked { Checker::installed() } else { None };
        let engine = Arc::new(Engine::new(self.seed, clock, url.clone(), checker));
        let serving = Arc::clone(&engine);
        let serve = move |request| serving.serve(request);
        let server =
            Server::serve(listener, self.socket.as_deref(), serve).expect("the simulator listens");
        Simulator { url, engine, server }
    }
}

/// A GitHub on this machine: its state, its clock and everything that can go wrong with it.
///
/// Repositories are named `owner/name`. What is set up here is known to every replica at once,
/// and is free of all limits.
#[derive(Debug)]
pub struct Simulator {
    url: String,
    engine: Arc<Engine>,
    /// Dropped, it stops.
    #[expect(dead_code, reason = "it is there to be dropped")]
    server: Server,
}

impl Simulator {
    /// Starts one whose clock stands still, with GitHub's limits and without faults.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub fn start(seed: u64) -> Self {
        Setup::new(seed).start()
    }

    /// Every REST endpoint it has, such as `GET /user`.
    pub fn endpoints() -> Vec<String> {
        crate::api::ROUTES.iter().map(crate::api::Route::kind).collect()
    }

    /// Where it listens, such as `http://127.0.0.1:1234`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its clock.
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.engine.clock)
    }

    /// Puts its clock forward.
    pub fn advance(&self, duration: Duration) {
        self.engine.clock.advance(duration);
    }

    /// Sets what goes wrong from now on.
    pub fn faults(&self, plan: FaultPlan) {
        self.engine.lock().plan = plan;
    }

    /// Makes this go wrong with the next such request, and only with that.
    pub fn fail_next(&self, target: Target, fault: Fault) {
        self.engine.lock().next.push((target, fault));
    }

    /// How many of those that were to go wrong next did not happen yet.
    pub fn pending_faults(&self) -> usize {
        self.engine.lock().next.len()
    }

    /// Answers everything with this status from now on; `None` ends it.
    pub fn outage(&self, status: Option<u16>) {
        self.engine.lock().outage = status;
    }

    /// Lets reads be behind by up to that much, each by as much as chance will have it.
    pub fn lag(&self, most: Duration) {
        self.engine.lock().lag = most;
    }

    /// Sets the limits.
    pub fn limits(&self, limits: Limits) {
        self.engine.lock().limits = limits;
    }

    /// What was asked so far.
    pub fn counters(&self) -> Counters {
        self.engine.lock().counters.clone()
    }

    /// Forgets what was asked so far; limits remember.
    pub fn clear_counters(&self) {
        self.engine.lock().counters = Counters::default();
    }

    /// What was not as GitHub describes it so far; they are taken, and no longer held against the
    /// test.
    pub fn violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.engine.lock().violations)
    }

    /// Everything it knows, as it is now.
    pub fn state(&self) -> World {
        self.engine.lock().world.clone()
    }

    /// Makes an account.
    pub fn add_user(&self, login: &str) {
        self.engine.lock().world.add_user(login);
    }

    /// Gives an account, made if need be, a token that may do everything the account may.
    pub fn add_token(&self, token: &str, login: &str) {
        self.add_token_with(token, login, Access::FULL);
    }

    /// Gives an account, made if need be, a token that may do only some things.
    pub fn add_token_with(&self, token: &str, login: &str, access: Access) {
        let world = &mut self.engine.lock().world;
        world.add_user(login);
        world.add_token(token, login, access);
    }

    /// Makes a token worthless.
    pub fn revoke_token(&self, token: &str) {
        self.engine.lock().world.tokens.remove(token);
    }

    /// Makes a repository, and its owner's account if need be, with one commit on `main`.
    pub fn add_repo(&self, name: &str) {
        self.add_empty_repo(name);
        let now = self.now();
        self.edit_repo(name, |repo| repo.push_first(now));
    }

    /// Makes a repository to which nothing was pushed.
    ///
    /// # Panics
    ///
    /// If the name is not of the form `owner/name`.
    pub fn add_empty_repo(&self, name: &str) {
        let (owner, short) = name.split_once('/').expect("a name is owner/name");
        let now = self.now();
        let world = &mut self.engine.lock().world;
        world.add_user(owner);
        let id = world.new_id();
        world.add_repo(Repo::new(id, owner, short, now));
    }

    /// Says what an account, made if need be, may do in a repository.
    pub fn add_collaborator(&self, repo: &str, login: &str, permission: Permission) {
        self.add_user(login);
        self.edit_repo(repo, |repo| {
            repo.collaborators.insert(login.to_lowercase(), permission);
        });
    }

    /// Archives a repository, or takes it out of the archive.
    pub fn archive(&self, repo: &str, archived: bool) {
        self.edit_repo(repo, |repo| repo.archived = archived);
    }

    /// Hides a repository from everybody who was not invited.
    pub fn make_private(&self, repo: &str) {
        self.edit_repo(repo, |repo| repo.private = true);
    }

    /// Switches the issues of a repository off.
    pub fn disable_issues(&self, repo: &str) {
        self.edit_repo(repo, |repo| repo.has_issues = false);
    }

    /// Lets a repository know no tree but those that were pushed: not even the empty one.
    pub fn forget_empty_tree(&self, repo: &str) {
        self.edit_repo(repo, |repo| {
            repo.git.trees.remove(crate::world::git::EMPTY_TREE);
        });
    }

    /// Renames a repository, or gives it to somebody else; the old name leads to the new one.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    pub fn rename_repo(&self, from: &str, to: &str) {
        let world = &mut self.engine.lock().world;
        if let Some((owner, _)) = to.split_once('/') {
            world.add_user(owner);
        }
        world.rename_repo(from, to).expect("the repository is there");
    }

    /// Deletes a repository.
    pub fn remove_repo(&self, name: &str) {
        self.engine.lock().world.remove_repo(name);
    }

    /// Opens an issue, written by the owner of the repository, and gives its number.
    pub fn add_issue(&self, repo: &str, title: &str) -> u64 {
        self.add_numbered(repo, title, None)
    }

    /// Opens a pull request that will close these issues, and gives its number.
    pub fn add_pull_request(&self, repo: &str, title: &str, closes: &[u64]) -> u64 {
        self.add_numbered(repo, title, Some(Pull { closes: closes.to_vec() }))
    }

    fn add_numbered(&self, repo: &str, title: &str, pull: Option<Pull>) -> u64 {
        let (now, id) = (self.now(), self.engine.lock().world.new_id());
        self.edit_repo(repo, |repo| {
            let author = repo.owner.clone();
            repo.add_issue(id, (Stamp::BEGINNING, now), (&author, title, ""), pull)
        })
    }

    /// Changes an issue, as its people would.
    pub fn edit_issue(
        &self,
        repo: &str,
        number: u64,
        change: impl FnOnce(&mut crate::world::IssueState),
    ) {
        let (now, id) = (self.now(), self.engine.lock().world.new_id());
        self.edit_repo(repo, |repo| {
            repo.edit_issue(number, now, change);
            let labels = repo.issue(number).map(|issue| issue.now().labels.clone());
            for name in labels.into_iter().flatten() {
                repo.labels.entry(name).or_insert(id);
            }
        });
    }

    /// Closes an issue or a pull request.
    pub fn close_issue(&self, repo: &str, number: u64) {
        let now = self.now();
        self.edit_issue(repo, number, |state| {
            state.open = false;
            state.reason = Some("completed".into());
            state.closed = Some(now);
        });
    }

    /// Deletes an issue.
    pub fn delete_issue(&self, repo: &str, number: u64) {
        self.edit_issue(repo, number, |state| state.fate = Fate::Deleted);
    }

    /// Moves an issue into another repository, where it gets a new number.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub fn transfer_issue(&self, repo: &str, number: u64, to: &str) -> u64 {
        let state = self.state();
        let issue = state.repo(repo).and_then(|repo| repo.issue(number)).expect("it is there");
        let there = self.add_issue(to, &issue.now().title);
        let fate = Fate::Moved { repository: to.to_owned(), number: there };
        self.edit_issue(repo, number, |state| state.fate = fate);
        there
    }

    /// Locks the conversation of an issue.
    pub fn lock_issue(&self, repo: &str, number: u64) {
        self.edit_issue(repo, number, |state| state.locked = true);
    }

    /// Puts a label on an issue.
    pub fn label_issue(&self, repo: &str, number: u64, label: &str) {
        self.edit_issue(repo, number, |state| state.labels.push(label.to_owned()));
    }

    /// Writes a comment as somebody, and gives its id.
    pub fn comment_as(&self, repo: &str, number: u64, login: &str, body: &str) -> u64 {
        self.add_user(login);
        let (now, id) = (self.now(), self.engine.lock().world.new_id());
        self.edit_repo(repo, |repo| repo.add_comment(id, number, now, login, body));
        id
    }

    /// Changes a comment, as people with that right can; `None` deletes it.
    pub fn edit_comment(&self, repo: &str, id: u64, body: Option<&str>) {
        let now = self.now();
        self.edit_repo(repo, |repo| repo.edit_comment(id, now, body));
    }

    /// Points a reference elsewhere, or nowhere, as somebody with a `git push --force` would.
    ///
    /// # Panics
    ///
    /// If there is no such commit, or another reference is in the way.
    pub fn set_ref(&self, repo: &str, name: &str, oid: Option<&str>) {
        let now = self.now();
        self.edit_repo(repo, |repo| {
            let after = oid.map(str::to_owned);
            let update = crate::world::git::Update {
                name: name.to_owned(),
                before: None,
                after,
                force: true,
            };
            repo.git.update(now, &[update]).expect("the reference can be set");
        });
    }

    fn now(&self) -> Stamp {
        self.engine.clock.stamp()
    }

    fn edit_repo<T>(&self, name: &str, edit: impl FnOnce(&mut Repo) -> T) -> T {
        let world = &mut self.engine.lock().world;
        edit(world.repo_mut(name).unwrap_or_else(|| panic!("there is no repository {name}")))
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.engine.clock.end();
        let violations = self.violations();
        if !std::thread::panicking() {
            let list: Vec<_> = violations.iter().map(ToString::to_string).collect();
            assert!(list.is_empty(), "not as GitHub describes it:\n{}", list.join("\n"));
        }
    }
}
