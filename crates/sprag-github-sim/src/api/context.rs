//! [`Context`]: everything a route needs to answer, and the checks most of them begin with.

use super::Params;
use crate::http::{Answer, Request};
use crate::limits::Limits;
use crate::stamp::Stamp;
use crate::world::issue::{Fate, Issue, IssueState};
use crate::world::{Access, Found, Level, Permission, Repo, World};

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) login: String,
    pub(crate) access: Access,
}

/// What a token has to be allowed to touch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Area {
    Issues,
    Contents,
}

/// Everything a route needs.
pub(crate) struct Context<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) request: &'a Request,
    pub(crate) params: &'a Params,
    pub(crate) now: Stamp,
    /// What the replica has seen that answers reads.
    pub(crate) seen: Stamp,
    pub(crate) base: &'a str,
    pub(crate) limits: &'a Limits,
    /// The id of what is written, if it was given out before it could be written.
    pub(crate) reserved: Option<u64>,
    /// What `GET /rate_limit` says.
    pub(crate) rates: serde_json::Value,
}

impl Context<'_> {
    /// The account that asks.
    pub(crate) fn login(&self) -> Result<&str, Answer> {
        let caller = self.caller.ok_or_else(|| Answer::error(401, "Requires authentication"))?;
        Ok(&caller.login)
    }

    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name)
    }

    /// A number in the path.
    pub(crate) fn number(&self, name: &str) -> Result<u64, Answer> {
        self.param(name).parse().map_err(|_| Answer::not_found())
    }

    /// What the caller may do in a repository; `None` if it may not even know of it.
    pub(crate) fn permission(&self, repo: &Repo) -> Option<Permission> {
        match self.caller {
            Some(caller) => repo.permission(&caller.login),
            None => (!repo.private).then_some(Permission::Read),
        }
    }

    /// The repository of the path.
    fn repo_id(&self) -> Result<u64, Answer> {
        let name = format!("{}/{}", self.param("owner"), self.param("repo"));
        let found = self.world.find(&name).ok_or_else(Answer::not_found)?;
        let (Found::Here(id) | Found::Renamed(id)) = found;
        let repo = self.world.repos.get(&id).ok_or_else(Answer::not_found)?;
        self.permission(repo).ok_or_else(Answer::not_found)?;
        match found {
            Found::Here(_) => Ok(id),
            Found::Renamed(_) => Err(self.moved(&self.address(id, &self.request.path[3..]))),
        }
    }

    /// An address by the number of a repository, which never changes.
    pub(crate) fn address(&self, repo: u64, path: &[String]) -> String {
        let mut address = format!("{}/repositories/{repo}", self.base);
        for part in path {
            address.push('/');
            address.push_str(&encode(part));
        }
        address
    }

    /// 301, or 307 so that a write stays one.
    pub(crate) fn moved(&self, address: &str) -> Answer {
        let status = if self.request.method == "GET" { 301 } else { 307 };
        let mut answer = Answer::error(status, "Moved Permanently");
        answer.body["url"] = address.into();
        answer.with("location", address)
    }

    fn allows(&self, area: Area, level: Level) -> bool {
        self.caller.is_none_or(|caller| {
            let allowed = match area {
                Area::Issues => caller.access.issues,
                Area::Contents => caller.access.contents,
            };
            allowed >= level
        })
    }

    /// The repository of the path, for reading.
    pub(crate) fn readable(&self, area: Area) -> Result<&Repo, Answer> {
        let id = self.repo_id()?;
        if !self.allows(area, Level::Read) {
            return Err(inaccessible());
        }
        self.world.repos.get(&id).ok_or_else(Answer::not_found)
    }

    /// The repository of the path, for writing by somebody with this permission at least.
    pub(crate) fn writable(&mut self, area: Area, needed: Permission) -> Result<&mut Repo, Answer> {
        let login = self.login()?.to_owned();
        let id = self.repo_id()?;
        if !self.allows(area, Level::Write) {
            return Err(inaccessible());
        }
        let repo = self.world.repos.get_mut(&id).ok_or_else(Answer::not_found)?;
        if repo.archived {
            return Err(Answer::error(403, "Repository was archived so is read-only."));
        }
        // Whoever may not is told that there is nothing, as GitHub does.
        if repo.permission(&login).is_none_or(|permission| permission < needed) {
            return Err(Answer::not_found());
        }
        Ok(repo)
    }

    /// The repository of the path and its issue, for writing.
    pub(crate) fn writable_issue(
        &mut self,
        needed: Permission,
    ) -> Result<(&mut Repo, u64), Answer> {
        let number = self.number("issue_number")?;
        let repo = self.writable(Area::Issues, needed)?;
        has_issues(repo)?;
        let (fate, repo_id) = match repo.issues.get(&number) {
            Some(issue) => (issue.now().fate.clone(), repo.id),
            None => return Err(Answer::not_found()),
        };
        self.check(&fate)?;
        let repo = self.world.repos.get_mut(&repo_id).ok_or_else(Answer::not_found)?;
        Ok((repo, number))
    }

    /// The repository of the path and its issue, as this replica has it.
    pub(crate) fn readable_issue(&self) -> Result<(&Repo, &Issue, &IssueState), Answer> {
        let number = self.number("issue_number")?;
        let repo = self.readable(Area::Issues)?;
        has_issues(repo)?;
        let issue = repo.issues.get(&number).ok_or_else(Answer::not_found)?;
        let state = issue.versions.at(self.seen).ok_or_else(Answer::not_found)?;
        self.check(&state.fate)?;
        Ok((repo, issue, state))
    }

    fn check(&self, fate: &Fate) -> Result<(), Answer> {
        match fate {
            Fate::Here => Ok(()),
            Fate::Deleted => Err(Answer::error(410, "This issue was deleted")),
            Fate::Moved { repository, number } => {
                let repo = self.world.repo(repository).ok_or_else(Answer::not_found)?;
                let mut path = self.request.path[3..].to_vec();
                if let Some(part) = path.get_mut(1) {
                    *part = number.to_string();
                }
                Err(self.moved(&self.address(repo.id, &path)))
            }
        }
    }
}

fn has_issues(repo: &Repo) -> Result<(), Answer> {
    if repo.has_issues {
        return Ok(());
    }
    Err(Answer::error(410, "Issues has been disabled in this repository."))
}

fn inaccessible() -> Answer {
    Answer::error(403, "Resource not accessible by personal access token")
}

fn encode(part: &str) -> String {
    let mut text = String::new();
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
