//! [`Plan`]: what goes into one swap, in the making.

use std::collections::{BTreeMap, BTreeSet};

use sprag_core::audit::AuditEntry;
use sprag_core::record::{Outcome, Record};
use sprag_core::{LeaseId, LockName, SessionId};

use crate::job::Job;
use crate::ledger::{Change, New};
use crate::oid::Oid;
use crate::page;
use crate::presence::Presence;
use crate::ref_name::RefName;
use crate::shelf::Copy;
use crate::witness::Seen;

/// One lock, as it was and as it is to be.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) base: Copy,
    pub(crate) record: Record,
    pub(crate) changed: bool,
    pub(crate) happened: Vec<AuditEntry>,
    /// Who is answered once it is written.
    pub(crate) done: Vec<(Job, Outcome)>,
}

impl Draft {
    pub(crate) fn of(base: Copy) -> Self {
        let record = base.record.clone();
        Self { base, record, changed: false, happened: Vec::new(), done: Vec::new() }
    }
}

/// What a change in the plan is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Lock(LockName),
    /// The session of this process.
    Ourselves,
    /// The session of somebody whose lock is taken over.
    Stranger(SessionId),
    /// What a job wants to go along.
    Along,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) drafts: BTreeMap<LockName, Draft>,
    /// Renewals for which a sign of life is enough.
    pub(crate) beats: Vec<Job>,
    /// Whether a sign of life has to be given.
    pub(crate) sign: bool,
    /// Those whose locks are taken over. A sign of life that they give meanwhile makes the swap
    /// fail, and the swap makes a later one fail.
    pub(crate) silenced: BTreeMap<SessionId, Seen>,
    /// What is not bound to our session any more once this is done.
    pub(crate) ended: BTreeSet<LeaseId>,
    pub(crate) along: Vec<Change>,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.beats.is_empty() && !self.sign && self.drafts.values().all(|d| d.done.is_empty())
    }

    /// The locks whose chains have become too long with what is to be written.
    pub(crate) fn overlong(&self, chain: u64) -> impl Iterator<Item = (&LockName, &Oid)> {
        let chain = chain.max(1);
        // What goes along with a swap must not meet a second try of it.
        let drafts = self.drafts.iter().filter(|_| self.along.is_empty());
        let overlong = drafts.filter(move |(_, draft)| {
            draft.changed && draft.base.record.version / chain != draft.record.version / chain
        });
        overlong.filter_map(|(name, draft)| Some((name, draft.base.tip.as_ref()?)))
    }

    /// What is to be swapped. Locks for which a tail is given begin anew with it.
    pub(crate) fn changes(
        &self,
        presence: &Presence,
        tails: &BTreeMap<LockName, Vec<String>>,
    ) -> Vec<(About, Change)> {
        let mut changes = Vec::new();
        for (name, draft) in self.drafts.iter().filter(|(_, draft)| draft.changed) {
            let mut entry = page::write_lock(name, &draft.record, &draft.happened);
            let new = match tails.get(name) {
                Some(tail) => {
                    page::add_tail(&mut entry, tail);
                    New::Root(entry)
                }
                None => New::Entry(entry),
            };
            let old = draft.base.tip.clone();
            let change = Change { name: RefName::lock(name), old, new };
            changes.push((About::Lock(name.clone()), change));
        }
        if presence.is_done_without(&self.ended) {
            if presence.is_there() {
                changes.push((About::Ourselves, presence.farewell()));
            }
        } else if self.sign {
            changes.push((About::Ourselves, presence.sign()));
        }
        for (session, seen) in &self.silenced {
            let new = New::Entry(page::write_session(seen.beat));
            let change = Change { name: RefName::session(*session), old: seen.tip.clone(), new };
            changes.push((About::Stranger(*session), change));
        }
        changes.extend(self.along.iter().cloned().map(|change| (About::Along, change)));
        changes
    }

    /// Gives the jobs back, to be decided anew.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        let done = self.drafts.into_values().flat_map(|draft| draft.done);
        self.beats.into_iter().chain(done.map(|(job, _)| job)).collect()
    }
}
