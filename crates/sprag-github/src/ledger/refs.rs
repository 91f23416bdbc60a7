//! Reading refs and commits.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use sprag_core::{ErrorKind, Result};
use sprag_ledger::{Oid, RefName};

use super::GitHubLedger;
use super::message::Message;
use crate::api::Trouble;
use crate::call::{Call, Cost, Urgency};
use crate::error::error;

/// More pages of a list than this are nobody's locks.
const MAX_PAGES: usize = 100;
/// From here on commits are read together.
const TOGETHER: usize = 3;
/// How many at once.
const BATCH: usize = 50;

#[derive(Deserialize)]
struct Repository {
    node_id: String,
    #[serde(default)]
    archived: bool,
}

#[derive(Deserialize)]
struct Ref {
    #[serde(rename = "ref")]
    name: String,
    object: Target,
}

#[derive(Deserialize)]
struct Target {
    sha: String,
}

#[derive(Deserialize)]
struct Commit {
    message: String,
}

#[derive(Deserialize)]
struct Listed {
    sha: String,
    commit: Told,
}

#[derive(Deserialize)]
struct Told {
    message: String,
}

impl GitHubLedger {
    /// Where a ref points. Asked again it costs nothing if it has not moved.
    pub(super) fn tip(&self, name: &RefName) -> Result<Option<Oid>, Trouble> {
        let call = Call::get(format!("{}/git/ref/{}", self.api.repository, inner(name)));
        let answer = self.api.ask(&call)?;
        match answer.status {
            // GitHub says the same of a ref and of a repository that is not there.
            404 => self.repository_id(Urgency::Normal).map(|_| None),
            _ if answer.is_success() => {
                let found: Ref = answer.read(name.as_str()).map_err(Trouble::Refused)?;
                oid(&found.object.sha).map(Some).map_err(Trouble::Refused)
            }
            _ => Err(Trouble::Refused(self.api.refusal(&call, &answer))),
        }
    }

    /// How GraphQL names the repository. Asked once; a repository that is not there, or into which
    /// nothing can be written, is refused.
    pub(super) fn repository_id(&self, urgency: Urgency) -> Result<&str, Trouble> {
        if let Some(id) = self.repository.get() {
            return Ok(id);
        }
        let call = Call::get(self.api.repository.clone()).urgent(urgency);
        let answer = self.api.ask(&call)?;
        if !answer.is_success() {
            return Err(Trouble::Refused(self.api.refusal(&call, &answer)));
        }
        let told: Repository = answer.read(&self.api.shown).map_err(Trouble::Refused)?;
        self.found(told.node_id, told.archived).map_err(Trouble::Refused)
    }

    fn found(&self, id: String, archived: bool) -> Result<&str> {
        if archived {
            let shown = &self.api.shown;
            let message = format!("{shown} is archived, so nothing can be written: unarchive it");
            return Err(error(ErrorKind::Refused, message));
        }
        Ok(self.repository.get_or_init(|| id))
    }

    /// The first look of a process tells everything in one request: the repository, the refs and
    /// the entries. `None` if it has to be done in another way. From then on each ref is asked for
    /// by itself, because that is free where nothing has changed.
    pub(super) fn first_look(&self, names: &[RefName]) -> Result<Option<Vec<Option<Oid>>>> {
        let each = names.iter().enumerate().map(|(index, name)| {
            let name = json!(name.as_str());
            format!(
                "r{index}: ref(qualifiedName: {name}) {{ target {{ oid ... on Commit {{ message }} }} }}\n"
            )
        });
        let query = format!(
            "query($owner: String!, $name: String!) {{ viewer {{ login }} repository(owner: $owner, \
             name: $name) {{ id isArchived\n{}}} }}",
            each.collect::<String>()
        );
        let variables = json!({ "owner": self.api.owner, "name": self.api.repo });
        let asked = self.api.graphql(Cost::Query, Urgency::Normal, &query, variables);
        // Whatever is wrong, the other way tells it better.
        let Ok((data, errors)) = asked else { return Ok(None) };
        if let Some(login) = data["viewer"]["login"].as_str() {
            self.api.account.get_or_init(|| Some(login.to_owned()));
        }
        let told = &data["repository"];
        let Some(id) = told["id"].as_str().filter(|_| errors.is_empty()) else { return Ok(None) };
        self.found(id.to_owned(), told["isArchived"].as_bool() == Some(true))?;
        let mut tips = Vec::new();
        for index in 0..names.len() {
            let target = &told[format!("r{index}")]["target"];
            let Some(sha) = target["oid"].as_str() else {
                tips.push(None);
                continue;
            };
            let tip = oid(sha)?;
            if let Some(text) = target["message"].as_str() {
                self.entries.put(tip.clone(), Message::read(text));
            }
            tips.push(Some(tip));
        }
        Ok(Some(tips))
    }

    pub(super) fn matching(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        let below = prefix.strip_prefix("refs/").unwrap_or(prefix);
        let path = format!("{}/git/matching-refs/{}", self.api.repository, escape(below));
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut page = path.clone();
        for _ in 0..MAX_PAGES {
            let answer = self.api.get(&Call::get(page))?;
            self.api.count(&answer, prefix, &mut bytes)?;
            for Ref { name, object } in answer.read::<Vec<Ref>>(prefix)? {
                if let Some(name) =
                    RefName::new(name).filter(|name| name.as_str().starts_with(prefix))
                {
                    found.push((name, oid(&object.sha)?));
                }
            }
            match answer.facts.next {
                Some(next) => page = format!("{path}?{next}"),
                None => {
                    found.sort();
                    return Ok(found);
                }
            }
        }
        let message =
            format!("{} has more than {} refs below {prefix}", self.api.shown, found.len());
        Err(error(ErrorKind::StoreFull, message))
    }

    /// What is in these commits.
    pub(super) fn messages(&self, oids: &[&Oid]) -> Result<Vec<Arc<Message>>> {
        let missing: Vec<_> =
            oids.iter().copied().filter(|oid| self.entries.get(oid).is_none()).collect();
        let mut read = HashMap::new();
        if missing.len() < TOGETHER {
            for oid in missing {
                let call = Call::get(format!("{}/git/commits/{oid}", self.api.repository));
                let answer = self.api.ask(&call)?;
                if matches!(answer.status, 404 | 409 | 422) {
                    return Err(not_yet(oid));
                }
                let commit: Commit = answer.read(oid.as_str())?;
                let message = Message::read(&commit.message);
                read.insert(oid, self.entries.put(oid.clone(), message));
            }
        } else {
            for batch in missing.chunks(BATCH) {
                self.read_together(batch, &mut read)?;
            }
        }
        let found = |oid: &&Oid| {
            let message = self.entries.get(oid).or_else(|| read.get(*oid).cloned());
            message.ok_or_else(|| not_yet(oid))
        };
        oids.iter().map(found).collect()
    }

    fn read_together<'a>(
        &self,
        oids: &[&'a Oid],
        read: &mut HashMap<&'a Oid, Arc<Message>>,
    ) -> Result<()> {
        let each = oids.iter().enumerate().map(|(index, oid)| {
            format!("c{index}: object(oid: \"{oid}\") {{ ... on Commit {{ message }} }}\n")
        });
        let query = format!(
            "query($owner: String!, $name: String!) {{ repository(owner: $owner, name: $name) \
             {{\n{}}} }}",
            each.collect::<String>()
        );
        let variables = json!({ "owner": self.api.owner, "name": self.api.repo });
        let (data, errors) = self.api.graphql(Cost::Query, Urgency::Normal, &query, variables)?;
        for (index, oid) in oids.iter().enumerate() {
            let text = data["repository"][format!("c{index}")]["message"].as_str();
            let text = text.ok_or_else(|| {
                let not_yet = not_yet(oid);
                errors.first().cloned().into_iter().fold(not_yet, sprag_core::Error::caused_by)
            })?;
            read.insert(oid, self.entries.put((*oid).clone(), Message::read(text)));
        }
        Ok(())
    }

    /// A commit and what came before it, the newest first.
    pub(super) fn ancestry(&self, tip: &Oid, limit: usize) -> Result<Vec<(Oid, Message)>, Trouble> {
        let (mut line, mut bytes) = (Vec::new(), 0);
        let path = format!("{}/commits", self.api.repository);
        let mut query = format!("sha={tip}&per_page={}", limit.clamp(1, 100));
        for _ in 0..MAX_PAGES {
            let call = Call::get(format!("{path}?{query}"));
            let answer = self.api.ask(&call)?;
            if matches!(answer.status, 404 | 409 | 422) {
                return Err(Trouble::Unknown(not_yet(tip)));
            }
            self.api.count(&answer, "history", &mut bytes).map_err(Trouble::Refused)?;
            let listed: Vec<Listed> = answer.read("history").map_err(Trouble::Refused)?;
            for Listed { sha, commit } in listed {
                let oid = oid(&sha).map_err(Trouble::Refused)?;
                line.push((oid, Message::read(&commit.message)));
            }
            match answer.facts.next {
                Some(next) if line.len() < limit => query = next,
                _ => break,
            }
        }
        line.truncate(limit);
        Ok(line)
    }
}

/// A ref was seen at a commit that is not there: whoever answered is late.
fn not_yet(oid: &Oid) -> sprag_core::Error {
    let message = format!("GitHub does not show the commit {oid} yet, which a ref points to");
    error(ErrorKind::Unavailable, message)
}

/// The part of a ref's name that GitHub wants in its paths.
pub(super) fn inner(name: &RefName) -> String {
    escape(name.as_str().strip_prefix("refs/").unwrap_or(name.as_str()))
}

/// Escapes what has a meaning in a URL.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

pub(super) fn oid(sha: &str) -> Result<Oid> {
    Oid::new(sha).ok_or_else(|| {
        let shown: String = sha.chars().take(64).collect();
        error(ErrorKind::Corrupt, format!("GitHub names a commit {shown:?}, which is no object id"))
    })
}
