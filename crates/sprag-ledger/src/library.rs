//! [`Library`]: reads locks and sessions, and remembers what was read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::clock::{Clock, Moment};
use sprag_core::record::{Context, Expiry, Hold, Record, Wait};
use sprag_core::store::LEFT_OUT;
use sprag_core::{Error, ErrorKind, LeaseId, LockName, LockView, Operation, Result, SessionId};

use crate::ledger::{Change, Entry, Ledger, New, Swapped};
use crate::oid::Oid;
use crate::page;
use crate::ref_name::RefName;
use crate::settings::{Abandoned, Settings};
use crate::shelf::{Copy, Shelf};
use crate::tended::Tended;
use crate::witness::{Sign, Witness};

/// How many records are read in one go when all are listed.
pub(crate) const READ_AT_ONCE: usize = 500;

/// Whose lease is over, whatever else is known.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) over: BTreeSet<LeaseId>,
    /// Those that the command deals with itself.
    pub(crate) spared: BTreeSet<LeaseId>,
}

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    /// The session of this process, which is alive whatever is read of it.
    pub(crate) own: SessionId,
    shelf: Mutex<Shelf>,
    witness: Mutex<Witness>,
    tended: Mutex<Tended>,
}

impl Library {
    pub(crate) fn new(
        ledger: Arc<dyn Ledger>,
        settings: Settings,
        clock: Arc<dyn Clock>,
        own: SessionId,
    ) -> Self {
        let witness = Mutex::new(Witness::new(settings.observations.clone()));
        Self {
            ledger,
            settings,
            clock,
            own,
            shelf: Mutex::default(),
            witness,
            tended: Mutex::default(),
        }
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tended(&self) -> MutexGuard<'_, Tended> {
        self.tended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads locks, in one request or two.
    pub(crate) fn read(&self, names: &[LockName]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let sent = self.clock.now();
        let refs: Vec<_> = names.iter().map(RefName::lock).collect();
        let tips = self.ledger.tips(&refs)?;
        let found = names
            .iter()
            .zip(refs)
            .zip(tips)
            .map(|((name, reference), tip)| (name.clone(), reference, tip));
        self.take_in(found.collect(), sent)
    }

    /// Takes in where these locks are, as a read that was sent at `sent` told.
    pub(crate) fn take_in(
        &self,
        found: Vec<(LockName, RefName, Option<Oid>)>,
        sent: Moment,
    ) -> Result<()> {
        let mut unread = Vec::new();
        for (name, reference, tip) in found {
            let known = self.shelf().get(&name).filter(|copy| copy.tip == tip).cloned();
            match (known.or_else(|| self.newer_than_absent(&name, tip.as_ref(), sent)), tip) {
                (Some(copy), _) => self.put(name, Copy { as_of: sent, ..copy }),
                (None, None) => {
                    let record = Record::default();
                    self.put(name, Copy { tip: None, record, as_of: sent, written: None });
                }
                (None, Some(tip)) => unread.push((name, (reference, tip))),
            }
        }
        if !unread.is_empty() {
            let (names, tips): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
            let mut entries = Vec::new();
            self.each_entry(&tips, &mut entries)?;
            for ((name, (_, tip)), entry) in names.into_iter().zip(tips).zip(entries) {
                let read = entry.and_then(|entry| page::read_lock(&entry));
                let record = read.map_err(|error| error.on(&name))?;
                let late = self.newer(&name, record.version, sent);
                let read = Copy { tip: Some(tip), record, as_of: sent, written: None };
                self.put(name, late.unwrap_or(read));
            }
        }
        self.witness().save();
        Ok(())
    }

    /// Reads entries together, or one by one where one of them is damaged, so that it is known
    /// which.
    fn each_entry(&self, tips: &[(RefName, Oid)], found: &mut Vec<Result<Entry>>) -> Result<()> {
        match self.ledger.entries(tips) {
            Ok(entries) => found.extend(entries.into_iter().map(Ok)),
            Err(error) if error.is_corrupt() && tips.len() == 1 => found.push(Err(error)),
            Err(error) if error.is_corrupt() => {
                let (first, second) = tips.split_at(tips.len() / 2);
                self.each_entry(first, found)?;
                self.each_entry(second, found)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The same, but a record that cannot be read is left out and told in the log: it must not
    /// hide all others from people who look for it.
    pub(crate) fn take_in_readable(
        &self,
        found: &[(LockName, RefName, Option<Oid>)],
        sent: Moment,
    ) -> Result<()> {
        match self.take_in(found.to_vec(), sent) {
            Err(error) if error.is_corrupt() && found.len() == 1 => {
                let lock = found[0].0.as_str();
                tracing::warn!(target: LEFT_OUT, lock, %error, "a record is left out");
                Ok(())
            }
            Err(error) if error.is_corrupt() => {
                let (first, second) = found.split_at(found.len() / 2);
                self.take_in_readable(first, sent)?;
                self.take_in_readable(second, sent)
            }
            taken => taken,
        }
    }

    /// What we know better, because we wrote it and the read is late.
    fn newer(&self, name: &LockName, version: u64, sent: Moment) -> Option<Copy> {
        let known = self.shelf().get(name).cloned()?;
        let late = |written: Moment| sent < written.plus(self.settings.lag);
        let newer = known.record.version > version && known.written.is_some_and(late);
        newer.then_some(Copy { as_of: sent, ..known })
    }

    fn newer_than_absent(&self, name: &LockName, tip: Option<&Oid>, sent: Moment) -> Option<Copy> {
        if tip.is_some() { None } else { self.newer(name, 0, sent) }
    }

    fn put(&self, name: LockName, copy: Copy) {
        self.saw(&copy);
        self.shelf().put(name, copy);
    }

    /// Leases that live by themselves give their signs of life in the record.
    pub(crate) fn saw(&self, copy: &Copy) {
        let now = self.clock.now();
        let mut witness = self.witness();
        for hold in copy.record.holders.iter().filter(|hold| hold.session.is_none()) {
            witness.saw_lease(hold.lease, hold.renewed_ms, now);
        }
        for wait in copy.record.waiters.iter().filter(|wait| wait.session.is_none()) {
            witness.saw_lease(wait.lease, wait.renewed_ms, now);
        }
    }

    /// The sessions of others that a record speaks of.
    pub(crate) fn strangers(&self, record: &Record) -> BTreeSet<SessionId> {
        let holders = record.holders.iter().filter_map(|hold| hold.session);
        let waiters = record.waiters.iter().filter_map(|wait| wait.session);
        holders.chain(waiters).filter(|session| *session != self.own).collect()
    }

    /// Reads sessions of others.
    pub(crate) fn watch(&self, sessions: &BTreeSet<SessionId>) -> Result<()> {
        if sessions.is_empty() {
            return Ok(());
        }
        let refs: Vec<_> = sessions.iter().copied().map(RefName::session).collect();
        let tips = self.ledger.tips(&refs)?;
        let found = sessions.iter().copied().zip(refs).zip(tips);
        self.take_in_sessions(found.map(|((id, reference), tip)| (id, reference, tip)).collect())
    }

    /// Takes in where these sessions are, as a read that has just returned told.
    pub(crate) fn take_in_sessions(
        &self,
        found: Vec<(SessionId, RefName, Option<Oid>)>,
    ) -> Result<()> {
        let returned = self.clock.now();
        let mut unread = Vec::new();
        for (id, reference, tip) in found {
            let mut witness = self.witness();
            let known = witness.session(id).filter(|seen| seen.tip == tip).map(|seen| seen.beat);
            match (known, tip) {
                (Some(beat), tip) => witness.saw_session(id, tip, beat, returned),
                (None, None) => witness.saw_session(id, None, 0, returned),
                (None, Some(tip)) => unread.push((id, (reference, tip))),
            }
        }
        if !unread.is_empty() {
            let (ids, tips): (Vec<_>, Vec<_>) = unread.into_iter().unzip();
            let mut entries = Vec::new();
            self.each_entry(&tips, &mut entries)?;
            for ((id, (_, tip)), entry) in ids.into_iter().zip(tips).zip(entries) {
                let beat = entry.and_then(|entry| page::read_session(&entry));
                // What cannot be read, of a newer version perhaps, is alive as long as it moves.
                let beat = beat.unwrap_or_else(|error| {
                    tracing::warn!(%error, session = %id, "a damaged session");
                    tip.fingerprint()
                });
                // What was written before the first read returned counts from then.
                self.witness().saw_session(id, Some(tip), beat, returned);
            }
        }
        self.witness().save();
        Ok(())
    }

    /// Whether the holder gave no sign of life for its TTL, and `at_least` for so long.
    pub(crate) fn is_stale(&self, hold: &Hold, at_least: Duration) -> bool {
        let ttl = Duration::from_millis(hold.ttl_ms).max(at_least);
        self.is_silent(hold.session, hold.lease, ttl)
    }

    fn is_silent(&self, session: Option<SessionId>, lease: LeaseId, ttl: Duration) -> bool {
        let sign = match session {
            Some(session) if session == self.own => {
                return self.tended().is_over(lease, self.clock.now());
            }
            // Only while it is known where its reference is: a takeover has to move it from there.
            // What was seen before a sign of life got in our way, or by an earlier command, is not
            // enough by itself.
            Some(session) if self.witness().session(session).is_none() => return false,
            Some(session) => Sign::Session(session),
            None => Sign::Lease(lease),
        };
        self.witness().is_silent(sign, self.clock.now(), ttl)
    }

    /// For how long a holder was seen without a sign of life.
    pub(crate) fn silence(&self, hold: &Hold) -> Option<Duration> {
        let sign = hold.session.map_or(Sign::Lease(hold.lease), Sign::Session);
        self.witness().silence(sign, self.clock.now())
    }

    fn is_over(&self, hold: &Hold) -> bool {
        // Our own are over when we say so.
        let stranger = hold.session.is_some_and(|session| session != self.own);
        let stays = stranger && self.settings.abandoned == Abandoned::Stays;
        !stays && self.is_stale(hold, Duration::ZERO)
    }

    /// A waiter has nothing that could be half done.
    fn has_left(&self, wait: &Wait) -> bool {
        self.is_silent(wait.session, wait.lease, Duration::from_millis(wait.ttl_ms))
    }

    /// Runs `with` with the world as it is seen now, but for what `verdict` says.
    pub(crate) fn with_context<T>(
        &self,
        name: &LockName,
        record: &Record,
        verdict: &Verdict,
        with: impl FnOnce(&Context<'_>) -> T,
    ) -> T {
        let holders = record.holders.iter().filter(|hold| self.is_over(hold)).map(|h| h.lease);
        let waiters = record.waiters.iter().filter(|wait| self.has_left(wait)).map(|w| w.lease);
        let over = holders.chain(waiters).chain(verdict.over.iter().copied());
        let over: BTreeSet<_> = over.filter(|lease| !verdict.spared.contains(lease)).collect();
        with(&Context {
            now_ms: self.now_ms(record),
            expiry: Expiry::Observed,
            fence_floor: self.shelf().fence_floor(name),
            max_waiters: self.settings.capability.max_waiters,
            is_dead: &|_| false,
            is_silent: &|lease| over.contains(&lease),
        })
    }

    /// A time for people to read and for the queue to be in order: of this machine, but never
    /// before what is in the record, so that a clock that is wrong does not put anybody last.
    fn now_ms(&self, record: &Record) -> u64 {
        let holders = record.holders.iter().map(|hold| hold.renewed_ms);
        let waiters = record.waiters.iter().map(|wait| wait.renewed_ms.max(wait.arrived_ms));
        let last = holders.chain(waiters).max().map_or(0, |last| last.saturating_add(1));
        last.max(self.clock.unix_micros() / 1000)
    }

    /// The lock as it looks from outside, if it was read.
    pub(crate) fn view(&self, name: &LockName) -> Option<LockView> {
        let record = self.shelf().get(name).map(|copy| copy.record.clone())?;
        let view = |context: &Context<'_>| record.view(name, context);
        Some(self.with_context(name, &record, &Verdict::default(), view))
    }

    /// Counts all holders of a record as silent, except ourselves.
    pub(crate) fn assume_dead(&self, record: &Record) {
        let others = record.holders.iter().filter(|hold| hold.session != Some(self.own));
        for hold in others {
            let sign = hold.session.map_or(Sign::Lease(hold.lease), Sign::Session);
            self.witness().assume_dead(sign);
        }
        self.witness().save();
    }

    /// Deletes the sessions of others that are silent and that no lock speaks of.
    pub(crate) fn tidy(&self, ttl: Duration) -> Result<usize> {
        // First the sessions: what is bound to one later was not stale when it was read.
        let sessions = self.ledger.list(RefName::sessions())?;
        let ids = sessions.iter().filter_map(|(at, _)| at.to_session());
        self.watch(&ids.filter(|id| *id != self.own).collect())?;
        let now = self.clock.now();
        let silent = sessions.into_iter().filter_map(|(at, tip)| {
            let id = at.to_session().filter(|id| *id != self.own)?;
            self.witness().is_silent(Sign::Session(id), now, ttl).then_some((id, tip))
        });
        self.remove_unnamed(silent.collect())
    }

    /// The sessions of the dead that one record speaks of and the next one does not.
    pub(crate) fn silent_and_gone(&self, old: &Record, new: &Record) -> Vec<(SessionId, Oid)> {
        let stay = self.strangers(new);
        let ttl = |id: &SessionId| {
            let holds = old.holders.iter().map(|hold| (hold.session, hold.ttl_ms));
            let all = holds.chain(old.waiters.iter().map(|wait| (wait.session, wait.ttl_ms)));
            all.filter(|(session, _)| *session == Some(*id)).map(|(_, ttl)| ttl).max()
        };
        let now = self.clock.now();
        let gone = self.strangers(old).into_iter().filter(|id| !stay.contains(id));
        gone.filter_map(|id| {
            let witness = self.witness();
            let ttl = Duration::from_millis(ttl(&id)?);
            let tip = witness.session(id)?.tip.clone()?;
            witness.is_silent(Sign::Session(id), now, ttl).then_some((id, tip))
        })
        .collect()
    }

    /// Deletes those of these sessions that are where they were and that no lock speaks of. Returns
    /// how many.
    pub(crate) fn remove_unnamed(&self, sessions: Vec<(SessionId, Oid)>) -> Result<usize> {
        if sessions.is_empty() {
            return Ok(0);
        }
        let sent = self.clock.now();
        let locks = self.ledger.list(RefName::locks())?;
        let locks = locks.into_iter().filter_map(|(at, tip)| Some((at.to_lock()?, at, Some(tip))));
        let locks: Vec<_> = locks.collect();
        let mut named = BTreeSet::new();
        for chunk in locks.chunks(READ_AT_ONCE) {
            self.take_in_readable(chunk, sent)?;
            let shelf = self.shelf();
            let copies = chunk.iter().filter_map(|(name, ..)| shelf.get(name));
            named.extend(copies.flat_map(|copy| self.strangers(&copy.record)));
        }
        let mut deleted = 0;
        for (id, tip) in sessions.into_iter().filter(|(id, _)| !named.contains(id)) {
            let change = Change { name: RefName::session(id), old: Some(tip), new: New::Nowhere };
            let swapped = self.ledger.swap(&[change])?;
            deleted += usize::from(matches!(swapped[..], [Swapped::Done(_)]));
        }
        Ok(deleted)
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, Operation::Acquire, message).at(self.settings.capability.store)
    }
}
