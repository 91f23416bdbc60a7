//! [`Ledger`]: a place with named references that can be compared and swapped.

use std::fmt;

use sprag_core::Result;
use sprag_core::diagnosis::Finding;

use crate::oid::Oid;
use crate::ref_name::RefName;

/// A place with named references to entries, each of which follows another one, or begins anew.
///
/// All calls block; the store makes them on threads of its own. An implementation may be asked by
/// several threads at once.
///
/// # Contract
///
/// 1. A swap happens if and only if the reference is what [`Change::old`] says, in one step.
/// 2. Every entry that is written gets an [`Oid`] that no other entry ever had, be its text the
///    same: two rivals who write the same at the same second are still told apart.
/// 3. *Unknown is an answer*: if a swap was sent and no answer came, the implementation reads back.
///    It says [`Swapped::Done`] if the reference is at the entry of this very attempt, and
///    [`Swapped::Refused`] only if it can never happen any more: the reference is at something
///    else than `old`. Otherwise it fails with an error that is
///    [indeterminate](sprag_core::Error::is_indeterminate).
/// 4. Reads may be late, by seconds on some servers. They never decide; a swap does.
pub trait Ledger: Send + Sync + fmt::Debug {
    /// Where these references point, in order; `None` where there is none.
    ///
    /// # Errors
    ///
    /// If the place cannot be reached or does not let us read.
    fn tips(&self, names: &[RefName]) -> Result<Vec<Option<Oid>>>;

    /// The references below a prefix, such as `refs/sprag/locks/`, in the order of their names.
    ///
    /// # Errors
    ///
    /// If the place cannot be reached or does not let us read.
    fn list(&self, prefix: &str) -> Result<Vec<(RefName, Oid)>>;

    /// What was written with these oids, which [`tips`](Self::tips) or [`list`](Self::list) told.
    /// Entries never change, so whoever has read one need not ask again.
    ///
    /// # Errors
    ///
    /// If the place cannot be reached, or an entry is not there.
    fn entries(&self, tips: &[(RefName, Oid)]) -> Result<Vec<Entry>>;

    /// Compares and swaps several references: all or none of them. One answer for each, in order.
    ///
    /// # Errors
    ///
    /// If nothing is known about the outcome, or the place refuses for good.
    fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>>;

    /// The last `limit` entries of a reference, the newest first.
    ///
    /// # Errors
    ///
    /// If the place cannot be reached or does not let us read.
    fn history(&self, name: &RefName, limit: usize) -> Result<Vec<(Oid, Entry)>>;

    /// Looks at what the promise of the place depends on; see
    /// [`Store::diagnose`](sprag_core::Store::diagnose).
    ///
    /// # Errors
    ///
    /// If the place cannot be reached.
    fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// One reference to be swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The reference.
    pub name: RefName,
    /// Where it has to point now; `None` if it must not exist.
    pub old: Option<Oid>,
    /// Where it is to point.
    pub new: New,
}

impl Change {
    /// The same, but what came before stays: for places that let no reference begin anew.
    #[must_use]
    pub fn following(self) -> Self {
        match self.new {
            New::Root(entry) => Self { new: New::Entry(entry), ..self },
            _ => self,
        }
    }
}

/// Where a reference is to point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// To an entry that is written for it and follows [`Change::old`].
    Entry(Entry),
    /// To an entry that is written for it and follows nothing, so that the place may forget what
    /// came before. Compared with [`Change::old`] all the same.
    Root(Entry),
    /// To something that is there already, such as a branch's commit. Not told apart from a rival
    /// who wants the same, so it only goes along with an entry in the same swap.
    At(Oid),
    /// Nowhere: the reference is deleted.
    Nowhere,
}

/// What is written behind a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What happened, in one line, for people who read the log.
    pub summary: String,
    /// The data.
    pub body: String,
}

/// What became of one [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It was done; here is where the reference points now.
    Done(Option<Oid>),
    /// It was not and will not be: the reference is not what it had to be.
    Refused,
    /// It was not and will not be, because of another change of the same swap.
    Aborted,
}
