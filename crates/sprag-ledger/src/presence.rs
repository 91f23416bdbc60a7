//! [`Presence`]: the session of this process, which is there as long as anything is bound to it.

use std::collections::BTreeSet;

use sprag_core::clock::Moment;
use sprag_core::{LeaseId, SessionId};

use crate::ledger::{Change, New};
use crate::oid::Oid;
use crate::page;
use crate::ref_name::RefName;

/// How many signs of life are kept; nobody reads more than the last.
const CHAIN: u64 = 64;

#[derive(Debug)]
pub(crate) struct Presence {
    pub(crate) id: SessionId,
    /// Where its reference is, as far as known.
    tip: Tip,
    /// The number of its last sign of life.
    beat: u64,
    /// When the last one that came through was sent.
    alive_at: Option<Moment>,
    /// What holds or waits, or may do so, and lives by this session.
    bound: BTreeSet<LeaseId>,
}

#[derive(Debug, PartialEq, Eq)]
enum Tip {
    /// Nobody knows: an answer was lost, or somebody else moved it.
    Unknown,
    At(Option<Oid>),
}

impl Presence {
    pub(crate) const fn new(id: SessionId) -> Self {
        Self { id, tip: Tip::At(None), beat: 0, alive_at: None, bound: BTreeSet::new() }
    }

    pub(crate) fn reference(&self) -> RefName {
        RefName::session(self.id)
    }

    pub(crate) fn bind(&mut self, lease: LeaseId) {
        self.bound.insert(lease);
    }

    pub(crate) fn unbind(&mut self, lease: LeaseId) {
        self.bound.remove(&lease);
    }

    /// Whether nothing is left once these are gone.
    pub(crate) fn is_done_without(&self, gone: &BTreeSet<LeaseId>) -> bool {
        self.bound.is_subset(gone)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.tip != Tip::Unknown
    }

    pub(crate) fn is_there(&self) -> bool {
        matches!(self.tip, Tip::At(Some(_)))
    }

    /// Whether a sign of life that was sent at `since` or later came through.
    pub(crate) fn gave_sign_since(&self, since: Moment) -> bool {
        self.is_there() && self.alive_at.is_some_and(|at| at >= since)
    }

    /// The next sign of life. Whoever takes something over from this session moves its reference
    /// in the same step, so only one of the two can happen.
    pub(crate) fn sign(&self) -> Change {
        let beat = self.beat + 1;
        let entry = page::write_session(beat);
        let new = if beat.is_multiple_of(CHAIN) { New::Root(entry) } else { New::Entry(entry) };
        Change { name: self.reference(), old: self.old(), new }
    }

    /// The end: nothing is bound to it any more.
    pub(crate) fn farewell(&self) -> Change {
        Change { name: self.reference(), old: self.old(), new: New::Nowhere }
    }

    fn old(&self) -> Option<Oid> {
        match &self.tip {
            Tip::At(tip) => tip.clone(),
            Tip::Unknown => None,
        }
    }

    /// A change that was sent at `sent` was done.
    pub(crate) fn moved(&mut self, tip: Option<Oid>, sent: Moment) {
        if tip.is_some() {
            self.beat += 1;
            self.alive_at = Some(sent);
        }
        self.tip = Tip::At(tip);
    }

    /// Nobody knows where it is now.
    pub(crate) fn lost_sight(&mut self) {
        self.tip = Tip::Unknown;
        self.alive_at = None;
    }

    /// It was read.
    pub(crate) fn found(&mut self, tip: Option<Oid>, beat: u64) {
        self.tip = Tip::At(tip);
        // A sign of life of ours may have come through without our knowing.
        self.beat = self.beat.max(beat);
    }
}
