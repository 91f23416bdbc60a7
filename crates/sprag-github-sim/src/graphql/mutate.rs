//! The mutations.

use serde_json::Value;

use super::run::{Arguments, Trouble};
use crate::api::{Caller, is_ref_name, refusal_words, render};
use crate::stamp::Stamp;
use crate::world::git::Update;
use crate::world::issue::Fate;
use crate::world::{Level, Permission, Repo, World};

/// What a mutation was about.
pub(super) enum Subject {
    Nothing,
    Issue(u64, u64),
    Comment(u64, u64),
    Ref(u64, String),
}

/// How many references one mutation changes at most.
const REFS: usize = 100;

/// Does one of them. Several of a request are done one after the other.
pub(super) fn mutate(
    world: &mut World,
    caller: &Caller,
    now: Stamp,
    reserved: Option<u64>,
    name: &str,
    arguments: &Arguments,
) -> Result<Subject, Trouble> {
    let input = arguments.get("input");
    let mut writer = Writer { world, caller, now };
    match name {
        "updateRefs" => writer.update_refs(input),
        "createRef" => writer.create_ref(input),
        "updateRef" | "deleteRef" => writer.update_ref(input, name == "deleteRef"),
        "addComment" => writer.add_comment(input, reserved),
        "addAssigneesToAssignable" => writer.assign(input, |old, new| {
            let more: Vec<_> = new.into_iter().filter(|login| !old.contains(login)).collect();
            old.extend(more);
        }),
        "removeAssigneesFromAssignable" => {
            writer.assign(input, |old, gone| old.retain(|login| !gone.contains(login)))
        }
        // What `gh issue edit --add-assignee` sends: the whole list, as the client knows it.
        "replaceActorsForAssignable" => writer.assign(input, |old, new| *old = new),
        "updateIssue" => writer.update_issue(input),
        _ => {
            let message = format!("Field '{name}' doesn't exist on type 'Mutation'");
            Err(Trouble::new("undefinedField", message))
        }
    }
}

struct Writer<'a> {
    world: &'a mut World,
    caller: &'a Caller,
    now: Stamp,
}

impl Writer<'_> {
    fn contents(&mut self, id: &Value) -> Result<&mut Repo, Trouble> {
        let found = self.world.repos.values_mut();
        let mut found = found.filter(|repo| *id == render::node("R", repo.id));
        let repo = found.next().ok_or_else(|| missing(id))?;
        if self.caller.access.contents < Level::Write {
            return Err(forbidden());
        }
        may_write(repo, &self.caller.login)?;
        if repo.git.is_empty() {
            return Err(Trouble::new("UNPROCESSABLE", "Git Repository is empty."));
        }
        Ok(repo)
    }

    /// All of them, or none.
    fn update_refs(&mut self, input: &Value) -> Result<Subject, Trouble> {
        let now = self.now;
        let repo = self.contents(&input["repositoryId"])?;
        let list = input["refUpdates"].as_array().map(Vec::as_slice).unwrap_or_default();
        if list.is_empty() || list.len() > REFS {
            return Err(Trouble::new("INVALID", "refUpdates has too few or too many entries"));
        }
        let updates: Result<Vec<_>, Trouble> = list.iter().map(ref_update).collect();
        repo.git.update(now, &updates?).map_err(|(name, refusal)| {
            let message = format!("Reference update failed: {name}: {}", refusal_words(refusal));
            Trouble::new("UNPROCESSABLE", message)
        })?;
        Ok(Subject::Nothing)
    }

    fn create_ref(&mut self, input: &Value) -> Result<Subject, Trouble> {
        let now = self.now;
        let repo = self.contents(&input["repositoryId"])?;
        let update = Update {
            name: ref_name(&input["name"])?,
            before: Some(None),
            after: input["oid"].as_str().map(str::to_owned),
            force: false,
        };
        let subject = Subject::Ref(repo.id, update.name.clone());
        let refused = |(_, refusal)| Trouble::new("UNPROCESSABLE", refusal_words(refusal));
        repo.git.update(now, &[update]).map_err(refused)?;
        Ok(subject)
    }

    /// The id of a reference says its repository and its name.
    fn update_ref(&mut self, input: &Value, delete: bool) -> Result<Subject, Trouble> {
        let now = self.now;
        let id = &input["refId"];
        let parts = id.as_str().and_then(|id| id.strip_prefix("REF_")?.split_once('_'));
        let (repo, name) = parts.ok_or_else(|| missing(id))?;
        let repo = repo.parse().map_err(|_| missing(id))?;
        let repo = self.contents(&render::node("R", repo).into())?;
        let after = (!delete).then(|| input["oid"].as_str().unwrap_or_default().to_owned());
        let force = delete || input["force"] == true;
        let update = Update { name: name.to_owned(), before: None, after, force };
        let subject =
            if delete { Subject::Nothing } else { Subject::Ref(repo.id, name.to_owned()) };
        let refused = |(_, refusal)| Trouble::new("UNPROCESSABLE", refusal_words(refusal));
        repo.git.update(now, &[update]).map_err(refused)?;
        Ok(subject)
    }

    /// The issue with that id, in a repository that can be written to.
    fn issue(&mut self, id: &Value) -> Result<(&mut Repo, u64), Trouble> {
        if self.caller.access.issues < Level::Write {
            return Err(forbidden());
        }
        for repo in self.world.repos.values_mut() {
            let found = repo.issues.values().find(|issue| *id == render::node("I", issue.id));
            let Some(number) = found.map(|issue| issue.number) else { continue };
            if repo.archived {
                let message = "Repository was archived so is read-only.";
                return Err(Trouble::new("UNPROCESSABLE", message));
            }
            if repo.issues[&number].now().fate != Fate::Here {
                return Err(missing(id));
            }
            return Ok((repo, number));
        }
        Err(missing(id))
    }

    fn add_comment(&mut self, input: &Value, reserved: Option<u64>) -> Result<Subject, Trouble> {
        let (now, login) = (self.now, self.caller.login.clone());
        let id = reserved.unwrap_or_else(|| self.world.new_id());
        let (repo, number) = self.issue(&input["subjectId"])?;
        repo.add_comment(id, number, now, &login, input["body"].as_str().unwrap_or_default());
        Ok(Subject::Comment(repo.id, id))
    }

    fn assign(
        &mut self,
        input: &Value,
        change: impl FnOnce(&mut Vec<String>, Vec<String>),
    ) -> Result<Subject, Trouble> {
        let now = self.now;
        let login = self.caller.login.clone();
        let named = |list: &Value| -> Vec<String> {
            let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
            let user = |word: &str| {
                let mut users = self.world.users.values();
                let known = users.find(|it| it.login == word || render::node("U", it.id) == word);
                known.map(|user| user.login.clone())
            };
            words.filter_map(user).collect()
        };
        let mut wanted: Vec<_> = ["assigneeIds", "actorIds", "actorLogins"]
            .iter()
            .flat_map(|field| named(&input[*field]))
            .collect();
        let (repo, number) = self.issue(&input["assignableId"])?;
        may_write(repo, &login)?;
        wanted.retain(|login| repo.is_assignable(login));
        repo.edit_issue(number, now, |state| change(&mut state.assignees, wanted));
        Ok(Subject::Issue(repo.id, number))
    }

    fn update_issue(&mut self, input: &Value) -> Result<Subject, Trouble> {
        let now = self.now;
        let login = self.caller.login.clone();
        let (repo, number) = self.issue(&input["id"])?;
        may_write(repo, &login)?;
        repo.edit_issue(number, now, |state| {
            for (name, part) in [("title", &mut state.title), ("body", &mut state.body)] {
                if let Some(text) = input[name].as_str() {
                    text.clone_into(part);
                }
            }
        });
        Ok(Subject::Issue(repo.id, number))
    }
}

fn ref_update(entry: &Value) -> Result<Update, Trouble> {
    // An object id of zeros means that there is nothing.
    let oid = |field: &str| entry[field].as_str().map(str::to_owned);
    let there = |oid: String| oid.bytes().any(|digit| digit != b'0').then_some(oid);
    let after = oid("afterOid");
    let after = after.ok_or_else(|| Trouble::new("INVALID", "afterOid was not given"))?;
    Ok(Update {
        name: ref_name(&entry["name"])?,
        before: oid("beforeOid").map(there),
        after: there(after),
        force: entry["force"] == true,
    })
}

fn ref_name(name: &Value) -> Result<String, Trouble> {
    let text = name.as_str().filter(|name| {
        name.starts_with("refs/") && name.matches('/').count() > 1 && is_ref_name(name)
    });
    let bad = || Trouble::new("INVALID", format!("{name} is not a valid ref name."));
    text.map(str::to_owned).ok_or_else(bad)
}

fn may_write(repo: &Repo, login: &str) -> Result<(), Trouble> {
    if repo.archived {
        let message = "Repository was archived so is read-only.";
        return Err(Trouble::new("UNPROCESSABLE", message));
    }
    match repo.permission(login) {
        Some(permission) if permission >= Permission::Write => Ok(()),
        _ => Err(Trouble::new(
            "FORBIDDEN",
            format!("{login} does not have the correct permissions to execute this mutation"),
        )),
    }
}

fn forbidden() -> Trouble {
    Trouble::new("FORBIDDEN", "Resource not accessible by personal access token")
}

fn missing(id: &Value) -> Trouble {
    Trouble::new("NOT_FOUND", format!("Could not resolve to a node with the global id of {id}"))
}
