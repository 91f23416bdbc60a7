//! What is written to main without a claim: new items, and what `init` makes.

use std::fmt::Write as _;

use sprag_git::RefChange;
use sprag_ledger::Oid;

use super::GitSource;
use crate::error::{Error, ErrorKind, Result};
use crate::flow::Place;
use crate::name::ItemName;
use crate::note::Note;
use crate::repo::Edit;

/// How often a commit is put on top of what others pushed meanwhile.
const ATTEMPTS: usize = 50;

/// An item to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// Its name.
    pub name: ItemName,
    /// What it is about, for its README.
    pub text: Option<String>,
    /// Higher goes first.
    pub priority: i64,
}

impl GitSource {
    /// Makes an item on main, in the first state.
    ///
    /// # Errors
    ///
    /// Input if there is one of that name.
    pub fn create(&self, new: &NewItem) -> Result<Place> {
        let first = self.flow.steps().first().map(|step| step.from.clone());
        let first = first.ok_or_else(|| Error::input("the flow has no first state"))?;
        let place = Place { category: None, state: first };
        let path = place.path(&self.root, &new.name);
        let text = new.text.clone().unwrap_or_default();
        let readme = format!("# {}\n\n{}\n", new.name, text.trim_end());
        let readme = Edit::Write { path: format!("{path}/README.md"), text: readme };
        let mut edits = vec![readme];
        if new.priority != 0 {
            let (path, text) = (format!("{path}/{}", Note::FILE), new.priority.to_string());
            edits.push(Edit::Write { path, text: format!("priority = {text}\n") });
        }
        let message = format!("work: new - {}", new.name);
        self.write(&edits, &message, |main| self.refuse_known(main, &new.name))?;
        Ok(place)
    }

    fn refuse_known(&self, main: &Oid, name: &ItemName) -> Result<bool> {
        for file in self.repo.files(main, &self.root)? {
            let below = file.path.strip_prefix(&self.root).and_then(|path| path.strip_prefix('/'));
            let parts: Vec<_> = below.unwrap_or_default().split('/').collect();
            let Some((place, found, _)) = self.flow.locate(&parts) else { continue };
            if found == name.as_str() {
                let message = format!("there is an item {name} in {place} already");
                return Err(Error::input(message)
                    .next("use another name", format!("sprag work new {name}-2")));
            }
        }
        Ok(true)
    }

    /// Makes the folder of items, with a page that explains it; whether it was not there.
    ///
    /// # Errors
    ///
    /// If the remote cannot be written.
    pub fn init(&self) -> Result<bool> {
        let path = format!("{}/README.md", self.root);
        let edits = [Edit::Write { path, text: self.page() }];
        self.write(&edits, "work: how items flow", |main| {
            Ok(self.repo.files(main, &self.root)?.is_empty())
        })
    }

    /// The page that explains the flow.
    pub fn page(&self) -> String {
        let mut page =
            "# Work\n\nEach folder below a state is an item. `sprag work next -- COMMAND` \
                        takes the next one.\n\n| state | claimed by branch | next state |\n\
                        |---|---|---|\n"
                .to_owned();
        for step in self.flow.steps() {
            let to =
                if step.sorts { format!("{{category}}/{}", step.to) } else { step.to.to_string() };
            writeln!(page, "| `{}/` | `{}-{{item}}` | `{to}/` |", step.from, step.claim).ok();
        }
        writeln!(page, "| any | `pending-{{item}}` | `pending-{{item}}/` |").ok();
        page
    }

    /// Changes main, if `wanted` says so about what is there; whether it did.
    fn write(
        &self,
        edits: &[Edit],
        message: &str,
        wanted: impl Fn(&Oid) -> Result<bool>,
    ) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let main = self.repo.look()?.main;
            if !wanted(&main)? {
                return Ok(false);
            }
            let tree = self.repo.edit(&main, edits)?;
            let commit = self.repo.commit(&tree, &[&main], message)?;
            let change = RefChange {
                name: self.repo.main_ref(),
                old: Some(main),
                new: Some(commit),
                unique: true,
            };
            match self.repo.push(&change) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        let message = format!("{} changed again and again: try later", self.repo.main());
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}
