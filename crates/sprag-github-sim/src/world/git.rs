//! [`Git`]: commits and references of a repository.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::versions::Versions;
use crate::hash::hash;
use crate::stamp::Stamp;

/// The tree without files, which git knows without being told.
pub(crate) const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A git repository.
#[derive(Clone, Debug, Default)]
pub struct Git {
    commits: HashMap<String, Commit>,
    pub(crate) trees: BTreeSet<String>,
    refs: BTreeMap<String, Versions<Option<String>>>,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its tree.
    pub tree: String,
    /// Its parents.
    pub parents: Vec<String>,
    /// Its message.
    pub message: String,
    pub(crate) author: Person,
    pub(crate) committer: Person,
    /// When it reached the server.
    pub(crate) arrived: Stamp,
}

/// Who made a commit, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) email: String,
    pub(crate) date: Stamp,
}

/// Why a reference was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Exists,
    Missing,
    NoObject,
    NotForward,
    /// Another reference is in the way: `a` and `a/b` cannot be there at once.
    InTheWay,
    /// It does not point to where it has to.
    Elsewhere,
}

/// A reference that is to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    pub(crate) name: String,
    /// Where it has to point: `Some(None)` if it must not exist, `None` if that does not matter.
    pub(crate) before: Option<Option<String>>,
    /// Where it is to point; `None` to delete it.
    pub(crate) after: Option<String>,
    pub(crate) force: bool,
}

impl Commit {
    /// The name git gives it. Equal commits have the same.
    pub(crate) fn oid(&self) -> String {
        let mut text = format!("tree {}\n", self.tree);
        for parent in &self.parents {
            text.push_str(&format!("parent {parent}\n"));
        }
        for (role, person) in [("author", &self.author), ("committer", &self.committer)] {
            let Person { name, email, date } = person;
            text.push_str(&format!("{role} {name} <{email}> {} +0000\n", date.seconds()));
        }
        text.push_str(&format!("\n{}", self.message));
        hash(&format!("commit {}\0{text}", text.len()))
    }
}

impl Git {
    /// Whether nothing was ever pushed.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Where all references point now.
    pub fn refs(&self) -> BTreeMap<String, String> {
        let now = self.refs.iter().map(|(name, versions)| (name, versions.now()));
        now.filter_map(|(name, oid)| Some((name.clone(), oid.clone()?))).collect()
    }

    /// Where a reference points now.
    pub fn tip(&self, name: &str) -> Option<&str> {
        self.refs.get(name)?.now().as_deref()
    }

    /// A commit.
    pub fn commit(&self, oid: &str) -> Option<&Commit> {
        self.commits.get(oid)
    }

    pub(crate) fn tip_at(&self, name: &str, seen: Stamp) -> Option<&str> {
        self.refs.get(name)?.at(seen)?.as_deref()
    }

    /// The references whose names begin so.
    pub(crate) fn matching(&self, prefix: &str, seen: Stamp) -> Vec<(&str, &str)> {
        let from = self.refs.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, versions)| Some((name.as_str(), versions.at(seen)?.as_deref()?)))
            .collect()
    }

    /// A reference with its name as it is kept here.
    pub(crate) fn reference(&self, name: &str, seen: Stamp) -> Option<(&str, &str)> {
        let (name, versions) = self.refs.get_key_value(name)?;
        Some((name, versions.at(seen)?.as_deref()?))
    }

    /// A commit with its name as it is kept here.
    pub(crate) fn object(&self, oid: &str, seen: Stamp) -> Option<(&str, &Commit)> {
        let (oid, commit) = self.commits.get_key_value(oid)?;
        (commit.arrived <= seen).then_some((oid, commit))
    }

    pub(crate) fn knows_tree(&self, oid: &str) -> bool {
        self.trees.contains(oid)
    }

    pub(crate) fn add_commit(&mut self, commit: Commit) -> String {
        let oid = commit.oid();
        // One that is there already keeps the time at which it came.
        self.commits.entry(oid.clone()).or_insert(commit);
        oid
    }

    /// Changes several references, or none of them.
    pub(crate) fn update(
        &mut self,
        now: Stamp,
        updates: &[Update],
    ) -> Result<(), (String, Refusal)> {
        for update in updates {
            self.check(update).map_err(|refusal| (update.name.clone(), refusal))?;
        }
        for Update { name, after, .. } in updates {
            match self.refs.get_mut(name) {
                Some(versions) => versions.set(now, after.clone()),
                None => {
                    self.refs.insert(name.clone(), Versions::new(now, after.clone()));
                }
            }
        }
        Ok(())
    }

    fn check(&self, update: &Update) -> Result<(), Refusal> {
        let current = self.tip(&update.name);
        match &update.before {
            Some(before) if before.as_deref() == current => {}
            Some(None) => return Err(Refusal::Exists),
            Some(Some(_)) if current.is_none() => return Err(Refusal::Missing),
            Some(Some(_)) => return Err(Refusal::Elsewhere),
            None => {}
        }
        let Some(after) = update.after.as_deref() else {
            return if current.is_some() { Ok(()) } else { Err(Refusal::Missing) };
        };
        if !self.commits.contains_key(after) {
            return Err(Refusal::NoObject);
        }
        match current {
            Some(old) if !update.force && !self.descends(after, old) => Err(Refusal::NotForward),
            None if self.is_in_the_way(&update.name) => Err(Refusal::InTheWay),
            _ => Ok(()),
        }
    }

    fn is_in_the_way(&self, name: &str) -> bool {
        let below = format!("{name}/");
        let mut above = name.match_indices('/').map(|(at, _)| &name[..at]);
        above.any(|name| self.tip(name).is_some()) || !self.matching(&below, FOREVER).is_empty()
    }

    /// Whether `old` is `new` or one of its ancestors.
    fn descends(&self, new: &str, old: &str) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![new]);
        while let Some(oid) = next.pop() {
            if oid == old {
                return true;
            }
            if seen.insert(oid) {
                let parents = self.commits.get(oid).map(|commit| commit.parents.as_slice());
                next.extend(parents.unwrap_or_default().iter().map(String::as_str));
            }
        }
        false
    }

    /// A commit and its ancestors along the first parents, the newest first.
    pub(crate) fn log(&self, tip: &str, seen: Stamp) -> Vec<(&str, &Commit)> {
        let mut entries = Vec::new();
        let mut next = self.object(tip, seen);
        while let Some((oid, commit)) = next {
            entries.push((oid, commit));
            next = commit.parents.first().and_then(|parent| self.object(parent, seen));
        }
        entries
    }
}

/// Later than everything, to see what is there now.
pub(crate) const FOREVER: Stamp = Stamp::from_micros(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(message: &str, parents: &[&str]) -> Commit {
        let person =
            Person { name: "a".into(), email: "a@b.c".into(), date: Stamp::from_micros(0) };
        Commit {
            tree: EMPTY_TREE.into(),
            parents: parents.iter().map(ToString::to_string).collect(),
            message: message.into(),
            author: person.clone(),
            committer: person,
            arrived: Stamp::BEGINNING,
        }
    }

    fn update(name: &str, before: Option<Option<&str>>, after: Option<&str>) -> Update {
        Update {
            name: name.into(),
            before: before.map(|oid| oid.map(str::to_owned)),
            after: after.map(str::to_owned),
            force: false,
        }
    }

    #[test]
    fn a_commit_is_named_as_git_names_it() {
        // printf 'tree 4b82...\nauthor a <a@b.c> 0 +0000\n...\n\nhello' | git hash-object -t commit
        assert_eq!(commit("hello", &[]).oid(), "923c79f3851b2a7f8bed19775f812ce514869bd0");
    }

    #[test]
    fn several_references_change_together_or_not_at_all() {
        let mut git = Git::default();
        let one = git.add_commit(commit("1", &[]));
        let two = git.add_commit(commit("2", &[&one]));
        let rival = git.add_commit(commit("3", &[&one]));
        let now = Stamp::from_micros(1);
        let create = |name| update(name, Some(None), Some(&one));
        git.update(now, &[create("refs/l/a"), create("refs/l/b")]).unwrap();
        let again = git.update(now, &[create("refs/l/c"), create("refs/l/a")]);
        assert_eq!(again, Err(("refs/l/a".into(), Refusal::Exists)));
        assert_eq!(git.tip("refs/l/c"), None);
        git.update(now, &[update("refs/l/a", None, Some(&two))]).unwrap();
        for (update, refusal) in [
            (update("refs/l/a", None, Some(&rival)), Refusal::NotForward),
            (update("refs/l/a", Some(Some(&one)), None), Refusal::Elsewhere),
            (update("refs/l/x", None, None), Refusal::Missing),
            (update("refs/l/a/b", Some(None), Some(&one)), Refusal::InTheWay),
            (update("refs/l", Some(None), Some(&one)), Refusal::InTheWay),
            (update("refs/l/x", Some(None), Some("none")), Refusal::NoObject),
        ] {
            assert_eq!(
                git.update(now, std::slice::from_ref(&update)).unwrap_err().1,
                refusal,
                "{update:?}"
            );
        }
        git.update(now, &[update("refs/l/a", Some(Some(&two)), None)]).unwrap();
        assert_eq!(git.refs().keys().collect::<Vec<_>>(), ["refs/l/b"]);
    }
}
