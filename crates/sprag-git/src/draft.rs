//! [`Draft`]: a change before it is known which hash the server names objects by.

use sprag_core::clock::{BootClock, Clock};
use sprag_ledger::{Change, New, Oid};

use crate::error::{GitError, Trouble};
use crate::object::{Commit, Format, Kind, Object};
use crate::push::RefChange;

/// What a push is to do.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    changes: &'a [Change],
    nonces: Vec<u128>,
    seconds: u64,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(changes: &'a [Change]) -> Result<Self, GitError> {
        let nonce = |_: &Change| {
            let mut bytes = [0; 16];
            let drawn = getrandom::fill(&mut bytes).map(|()| u128::from_le_bytes(bytes));
            drawn.map_err(|e| GitError::new(Trouble::Failed, format!("no random numbers: {e}")))
        };
        let nonces = changes.iter().map(nonce).collect::<Result<_, _>>()?;
        Ok(Self { changes, nonces, seconds: BootClock.unix_micros() / 1_000_000 })
    }

    /// The references to change, and the objects that are made for it.
    pub(crate) fn finish(&self, format: Format) -> Result<(Vec<RefChange>, Vec<Object>), GitError> {
        let mut objects = Vec::new();
        let mut changes = Vec::new();
        for (change, nonce) in self.changes.iter().zip(&self.nonces) {
            let (new, unique) = match &change.new {
                New::Entry(entry) | New::Root(entry) => {
                    let is_root = matches!(change.new, New::Root(_));
                    let parent = change.old.clone().filter(|_| !is_root);
                    let commit = Commit { parent, entry: entry.clone() };
                    let object = commit.encode(format, *nonce, self.seconds);
                    let oid = Oid::new(object.oid(format));
                    objects.push(object);
                    (oid, true)
                }
                New::At(oid) => (Some(oid.clone()), false),
                New::Nowhere => (None, true),
            };
            let known = [change.old.as_ref(), new.as_ref()];
            if known.into_iter().flatten().any(|oid| Format::of(oid) != format) {
                let message = format!(
                    "the remote names its objects by {}, but {} is to follow another one: the \
                     repository was replaced; read it again",
                    format.name(),
                    change.name
                );
                return Err(GitError::new(Trouble::Failed, message));
            }
            let (name, old) = (change.name.clone(), change.old.clone());
            changes.push(RefChange { name, old, new, unique });
        }
        if !objects.is_empty() {
            objects.push(Object::EMPTY_TREE);
        }
        debug_assert!(
            objects.iter().all(|object| matches!(object.kind, Kind::Commit | Kind::Tree))
        );
        Ok((changes, objects))
    }

    /// Which hash the objects that are there already are named by.
    pub(crate) fn format(&self) -> Option<Format> {
        let there = |change: &Change| match &change.new {
            New::At(oid) => Some(Format::of(oid)),
            _ => change.old.as_ref().map(Format::of),
        };
        self.changes.iter().find_map(there)
    }
}
