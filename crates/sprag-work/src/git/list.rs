//! Which items there are, and which of them can be claimed.

use std::collections::{BTreeMap, HashMap};

use super::GitSource;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::Place;
use crate::item::{Item, in_order};
use crate::name::ItemName;
use crate::note::Note;
use crate::repo::{Ages, Remote};
use crate::source::{Ready, Skipped, Wanted};

/// All items, as the remote has them.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) remote: Remote,
    /// In the order in which they are worked on.
    pub(crate) items: Vec<Item>,
    /// Folders that look like items and are none, and why.
    pub(crate) odd: Vec<Skipped>,
}

impl GitSource {
    /// Reads all items.
    pub(crate) fn list(&self) -> Result<Listed> {
        let remote = self.repo.look()?;
        let files = self.repo.files(&remote.main, &self.root)?;
        let mut folders: BTreeMap<(String, Place), Option<&sprag_ledger::Oid>> = BTreeMap::new();
        for file in &files {
            let below = file.path.strip_prefix(&self.root).and_then(|path| path.strip_prefix('/'));
            let parts: Vec<_> = below.unwrap_or_default().split('/').collect();
            let Some((place, name, depth)) = self.flow.locate(&parts) else { continue };
            let Some(rest) = parts.get(depth..).filter(|rest| !rest.is_empty()) else { continue };
            let note = folders.entry((name.to_owned(), place)).or_default();
            if rest == [Note::FILE] {
                *note = Some(&file.blob);
            }
        }
        let blobs: Vec<_> = folders.values().flatten().copied().collect();
        let mut texts = self.repo.texts(&blobs)?.into_iter();
        let ages = Ages::read(&self.repo, &self.flow, &self.root, &remote.main)?;
        let mut listed = Listed { remote, items: Vec::new(), odd: Vec::new() };
        for ((name, place), note) in folders {
            let text = note.and_then(|_| texts.next()).unwrap_or_default();
            match self.item(&name, place, &text, &ages) {
                Ok(item) => listed.items.push(item),
                Err(error) => {
                    listed.odd.push(Skipped { item: name, why: error.message().to_owned() });
                }
            }
        }
        in_order(&mut listed.items);
        Ok(listed)
    }

    fn item(&self, name: &str, place: Place, note: &str, ages: &Ages) -> Result<Item> {
        let (order, since) = ages.of(name);
        let Note { priority, left } = Note::read(note)?;
        Ok(Item { name: ItemName::new(name)?, place, priority, left, order, since })
    }

    /// Finds an item by its name, or by the name that it had before its stamp.
    ///
    /// # Errors
    ///
    /// Nothing if there is none; input if there are several.
    pub(crate) fn find<'a>(&self, listed: &'a Listed, name: &str) -> Result<&'a Item> {
        let open = |item: &&Item| !self.flow.is_last(&item.place.state);
        let named: Vec<_> = listed.items.iter().filter(|item| item.name.as_str() == name).collect();
        let stamped =
            |item: &&Item| item.name.split_stamp().is_some_and(|(front, _)| front == name);
        let found: Vec<_> = match named.iter().copied().filter(open).collect::<Vec<_>>() {
            open if !open.is_empty() => open,
            _ if !named.is_empty() => named,
            _ => listed.items.iter().filter(stamped).filter(open).collect(),
        };
        match &found[..] {
            [item] => Ok(item),
            [] => {
                let names = listed.items.iter().map(|item| item.name.as_str());
                let error = Error::new(ErrorKind::Nothing, format!("there is no item {name:?}"));
                let near = names.filter(|other| other.contains(name)).take(3).collect::<Vec<_>>();
                let error = match &near[..] {
                    [] => error,
                    near => error.fact("like it", near.join(", ")),
                };
                Err(error.next("see all", "sprag work ls"))
            }
            several => {
                let paths: Vec<_> =
                    several.iter().map(|item| item.place.path(&self.root, &item.name)).collect();
                let message = format!("there are {} items {name:?}", several.len());
                let next = format!("git mv {} {}-2", paths[0], paths[0]);
                Err(Error::input(message)
                    .fact("at", paths.join(" and "))
                    .next("rename one of them", next))
            }
        }
    }

    /// The branches that show that somebody has the item.
    pub(crate) fn claims<'a>(&self, remote: &'a Remote, item: &ItemName) -> Vec<&'a str> {
        let named = self.flow.words().map(|word| format!("{word}-{item}"));
        named.filter_map(|name| Some(remote.branches.get_key_value(&name)?.0.as_str())).collect()
    }

    /// Which items can be claimed, in order, and why others cannot.
    pub(crate) fn sift(&self, listed: &Listed, wanted: &Wanted) -> Ready {
        let mut ready = Ready { items: Vec::new(), skipped: listed.odd.clone() };
        let mut seen: HashMap<&ItemName, usize> = HashMap::new();
        let open = |item: &&Item| !self.flow.is_last(&item.place.state);
        for item in listed.items.iter().filter(open) {
            *seen.entry(&item.name).or_default() += 1;
        }
        for item in listed.items.iter().filter(open) {
            let state = &item.place.state;
            let asked = if wanted.states.is_empty() {
                !state.is_pending()
            } else {
                wanted.states.contains(state)
            };
            if !asked {
                continue;
            }
            let why = if wanted.without.contains(&item.name) {
                Some("it went wrong here before".to_owned())
            } else if seen[&item.name] > 1 {
                Some("another item has the same name: rename one".to_owned())
            } else {
                let claims = self.claims(&listed.remote, &item.name);
                claims.first().map(|branch| format!("claimed: branch {branch}"))
            };
            match why {
                None => ready.items.push(item.clone()),
                Some(why) => ready.skipped.push(Skipped { item: item.name.to_string(), why }),
            }
        }
        ready
    }
}
