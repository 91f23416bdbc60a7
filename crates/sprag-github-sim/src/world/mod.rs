//! Everything GitHub knows, as data.

pub(crate) mod git;
pub(crate) mod issue;
pub(crate) mod repo;
pub(crate) mod user;
mod versions;

use std::collections::{BTreeMap, HashMap};

pub use git::{Commit, Git};
pub use issue::{Comment, CommentState, Fate, Issue, IssueState};
pub use repo::Repo;
pub use user::{Access, Level, Permission, User};

use user::Token;

/// All accounts, tokens and repositories.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// By login in lower case.
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) tokens: HashMap<String, Token>,
    pub(crate) repos: BTreeMap<u64, Repo>,
    /// Which repository a name means, in lower case.
    names: BTreeMap<String, Name>,
    last_id: u64,
}

/// What a repository's name leads to.
#[derive(Clone, Copy, Debug)]
enum Name {
    Current(u64),
    /// It has another name now.
    Former(u64),
}

/// What was found under a repository's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    Here(u64),
    Renamed(u64),
}

impl World {
    /// A repository by its present name, `owner/name`.
    pub fn repo(&self, full_name: &str) -> Option<&Repo> {
        match self.names.get(&full_name.to_lowercase())? {
            Name::Current(id) => self.repos.get(id),
            Name::Former(_) => None,
        }
    }

    pub(crate) fn repo_mut(&mut self, full_name: &str) -> Option<&mut Repo> {
        match self.names.get(&full_name.to_lowercase())? {
            Name::Current(id) => self.repos.get_mut(id),
            Name::Former(_) => None,
        }
    }

    pub(crate) fn find(&self, full_name: &str) -> Option<Found> {
        match self.names.get(&full_name.to_lowercase())? {
            Name::Current(id) => Some(Found::Here(*id)),
            Name::Former(id) => self.repos.contains_key(id).then_some(Found::Renamed(*id)),
        }
    }

    /// A number nothing else has.
    pub(crate) const fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn add_user(&mut self, login: &str) {
        let id = self.new_id();
        let user = User { id, login: login.to_owned() };
        self.users.entry(login.to_lowercase()).or_insert(user);
    }

    pub(crate) fn user(&self, login: &str) -> Option<&User> {
        self.users.get(&login.to_lowercase())
    }

    pub(crate) fn add_token(&mut self, token: &str, login: &str, access: Access) {
        let login = login.to_owned();
        self.tokens.insert(token.to_owned(), Token { login, access });
    }

    pub(crate) fn add_repo(&mut self, repo: Repo) {
        self.names.insert(repo.full_name().to_lowercase(), Name::Current(repo.id));
        self.repos.insert(repo.id, repo);
    }

    pub(crate) fn rename_repo(&mut self, from: &str, to: &str) -> Option<()> {
        let Some(Found::Here(id)) = self.find(from) else { return None };
        let (owner, name) = to.split_once('/')?;
        let repo = self.repos.get_mut(&id)?;
        (repo.owner, repo.name) = (owner.to_owned(), name.to_owned());
        self.names.insert(from.to_lowercase(), Name::Former(id));
        self.names.insert(to.to_lowercase(), Name::Current(id));
        Some(())
    }

    pub(crate) fn remove_repo(&mut self, full_name: &str) -> Option<Repo> {
        let id = self.repo(full_name)?.id;
        self.names.remove(&full_name.to_lowercase());
        self.repos.remove(&id)
    }
}
