//! Reading refs and commits.

use serde::Deserialize;
use serde_json::{Value, json};
use sprag_core::{ErrorKind, Result};
use sprag_ledger::{Oid, RefName};

use super::cache::Noted;
use super::{GitHubLedger, message};
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
            404 => self.exists().map(|()| None),
            _ if answer.is_success() => {
                let found: Ref = answer.read(name.as_str()).map_err(Trouble::Refused)?;
                oid(&found.object.sha).map(Some).map_err(Trouble::Refused)
            }
            _ => Err(Trouble::Refused(self.api.refusal(&call, &answer))),
        }
    }

    /// Refuses a repository that is not there, once.
    fn exists(&self) -> Result<(), Trouble> {
        if self.seen.get().is_some() {
            return Ok(());
        }
        let call = Call::get(self.api.repository.clone());
        let answer = self.api.ask(&call)?;
        if !answer.is_success() {
            return Err(Trouble::Refused(self.api.refusal(&call, &answer)));
        }
        let told: Value = answer.read(&self.api.shown).map_err(Trouble::Refused)?;
        if told.get("archived").and_then(Value::as_bool) == Some(true) {
            let message = format!(
                "{} is archived, so nothing can be written: unarchive it",
                self.api.shown
            );
            return Err(Trouble::Refused(error(ErrorKind::Refused, message)));
        }
        // Asked twice at once it is the same.
        self.seen.get_or_init(|| ());
        Ok(())
    }

    pub(super) fn matching(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>> {
        let below = prefix.strip_prefix("refs/").unwrap_or(prefix);
        let path = format!("{}/git/matching-refs/{}", self.api.repository, escape(below));
        let mut found = Vec::new();
        let mut query = "per_page=100".to_owned();
        for _ in 0..MAX_PAGES {
            let answer = self.api.get(&Call::get(format!("{path}?{query}")))?;
            for Ref { name, object } in answer.read::<Vec<Ref>>(prefix)? {
                if let Some(name) = RefName::new(name).filter(|name| name.as_str().starts_with(prefix))
                {
                    found.push((name, oid(&object.sha)?));
                }
            }
            match answer.facts.next {
                Some(next) => query = next,
                None => {
                    found.sort();
                    return Ok(found);
                }
            }
        }
        let message = format!("{} has more than {} refs below {prefix}", self.api.shown, found.len());
        Err(error(ErrorKind::StoreFull, message))
    }

    /// The entries of these commits, which are remembered.
    pub(super) fn commits(&self, oids: &[&Oid]) -> Result<Vec<(Oid, Noted)>> {
        let mut read = Vec::new();
        if oids.len() < TOGETHER {
            for oid in oids {
                let call = Call::get(format!("{}/git/commits/{oid}", self.api.repository));
                let commit: Commit = self.api.get(&call)?.read(oid.as_str())?;
                read.push(((*oid).clone(), message::read(&commit.message)));
            }
        } else {
            for batch in oids.chunks(BATCH) {
                self.commits_together(batch, &mut read)?;
            }
        }
        for (oid, entry) in &read {
            self.entries.put(oid.clone(), entry.clone());
        }
        Ok(read)
    }

    fn commits_together(&self, oids: &[&Oid], read: &mut Vec<(Oid, Noted)>) -> Result<()> {
        let each = oids.iter().enumerate().map(|(index, oid)| {
            format!("c{index}: object(oid: \"{oid}\") {{ ... on Commit {{ message }} }}\n")
        });
        let query = format!(
            "query($owner: String!, $name: String!) {{ repository(owner: $owner, name: $name) {{\n{}}} }}",
            each.collect::<String>()
        );
        let variables = json!({ "owner": self.api.owner, "name": self.api.repo });
        let (data, errors) = self.api.graphql(Cost::Query, Urgency::Normal, &query, variables)?;
        for (index, oid) in oids.iter().enumerate() {
            let text = data["repository"][format!("c{index}")]["message"].as_str();
            let text = text.ok_or_else(|| {
                let told = errors.first().map_or("no such commit", String::as_str);
                error(ErrorKind::Corrupt, format!("the entry {oid} cannot be read: {told}"))
            })?;
            read.push(((*oid).clone(), message::read(text)));
        }
        Ok(())
    }

    /// A commit and what came before it, the newest first.
    pub(super) fn ancestry(&self, tip: &Oid, limit: usize) -> Result<Vec<(Oid, Noted)>, Trouble> {
        let mut line = Vec::new();
        let path = format!("{}/commits", self.api.repository);
        let mut query = format!("sha={tip}&per_page={}", limit.clamp(1, 100));
        for _ in 0..MAX_PAGES {
            let call = Call::get(format!("{path}?{query}"));
            let answer = self.api.ask(&call)?;
            if !answer.is_success() {
                return Err(Trouble::Refused(self.api.refusal(&call, &answer)));
            }
            let listed: Vec<Listed> = answer.read("history").map_err(Trouble::Refused)?;
            for Listed { sha, commit } in listed {
                let oid = oid(&sha).map_err(Trouble::Refused)?;
                line.push((oid, message::read(&commit.message)));
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
