//! [`Desk`] and [`Shared`]: where work is done, inside the gate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sprag_core::clock::Clock;
use sprag_core::record::{Applied, Command, Context, Expiry, Outcome, Record, apply};
use sprag_core::{Fence, LeaseId, LockName, Loss, Result, SessionId};

use crate::database::{Database, is_conflict};
use crate::error::{busy, from_io, gone};
use crate::gate::Gate;
use crate::place::Place;
use crate::session::Session;
use crate::wake::Wakeups;

/// Waiters per lock.
pub(crate) const MAX_WAITERS: usize = 4096;
/// The largest fence that was cleaned away, in `meta`.
pub(crate) const HIGH_WATER: &str = "fence";
/// How often a transaction is tried again; more than once only if the gate file was deleted.
const TRIES: u32 = 8;

/// A connection with its own entrance to the gate.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) database: Database,
    pub(crate) gate: Gate,
}

impl Desk {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        Ok(Self {
            database: Database::connect(&place.database)?,
            gate: Gate::open(&place.gate).map_err(|e| from_io("open", &place.gate, e))?,
        })
    }
}

/// Commands that are applied in one transaction, in order.
#[derive(Debug)]
pub(crate) struct Work(pub(crate) Vec<(LockName, Command)>);

/// What became of each command. Only a damaged record is an error of its own.
pub(crate) type Answers = Vec<Result<Applied>>;

/// What the threads of one store handle share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: Place,
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wakeups: Wakeups,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_free_records: u32,
    /// Writes since the last housekeeping.
    pub(crate) writes: AtomicU32,
    /// Whether the housekeeping is running.
    pub(crate) tidying: AtomicBool,
    /// How often it ran.
    pub(crate) tidied: AtomicU32,
}

impl Shared {
    /// Runs `with` with the world as it is now.
    pub(crate) fn with_context<T>(&self, floor: u64, with: impl FnOnce(&Context<'_>) -> T) -> T {
        with(&Context {
            now_ms: self.clock.now().as_millis(),
            expiry: Expiry::Clock,
            // A power cut may undo the last commits, fences among them, and a clean-up forgets
            // records: time and the high-water mark still move forward.
            fence_floor: self.clock.unix_micros().min(Fence::MAX.get() - 1).max(floor),
            max_waiters: MAX_WAITERS,
            is_dead: &|session| self.is_dead(session),
        })
    }

    /// Whether a session is gone for good.
    fn is_dead(&self, session: SessionId) -> bool {
        if session == self.session.id {
            // Usually alive without asking. If its file is gone the others take it for dead and
            // may hold our locks by now; the machine then tells us the same.
            return !self.session.is_intact();
        }
        // A missing file means dead only where our own is still to be seen: if the whole folder
        // was deleted or moved, everybody would look dead.
        self.session.is_dead(session) && self.session.is_intact()
    }

    /// Does the work. Called inside the gate.
    pub(crate) fn perform(&self, database: &mut Database, work: &Work) -> Result<Answers> {
        if !self.place.is_intact() {
            return without(work, &self.place.database, &Loss::StateLost);
        }
        if !self.session.is_intact() {
            let path = self.session.path();
            tracing::error!(path = %path.display(), "the session file was deleted while in use");
            if !self.place.sessions.is_dir() {
                return without(work, &self.place.sessions, &Loss::SessionDied);
            }
        }
        let mut full = false;
        for _ in 0..TRIES {
            match self.attempt(database, work) {
                // Somebody wrote without the gate, because its file was deleted. What was decided
                // from the old state is thrown away.
                Err(error) if is_conflict(&error) => {}
                // The log needs space only while it grows: once it is copied into the database
                // it is written from its start again. So a release works on a full disk.
                Err(error) if error.is_store_full() && !full => {
                    full = true;
                    database.checkpoint(false)?;
                }
                result => return result,
            }
        }
        Err(busy(&self.place.database))
    }

    fn attempt(&self, database: &mut Database, work: &Work) -> Result<Answers> {
        let transaction = database.begin()?;
        let mut answers = Answers::with_capacity(work.0.len());
        let mut changed = false;
        for (name, command) in &work.0 {
            if let Command::Renew { rebind: Some(Some(_)), .. } = command
                && !self.session.is_intact()
            {
                // It asks to live and die with this session, which is dead to the others.
                answers.push(Ok(lost(Loss::SessionDied)));
                continue;
            }
            let loaded = match transaction.load(name) {
                Ok(loaded) => loaded,
                // One damaged record must not cost the other locks their renewal.
                Err(error) if error.is_corrupt() => {
                    answers.push(Err(error.on(name)));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let floor = match loaded.version {
                Some(_) => 0,
                // It may have had a record before a clean-up.
                None => transaction
                    .meta(HIGH_WATER)?
                    .map_or(0, |mark: i64| u64::try_from(mark).unwrap_or(0).saturating_add(1)),
            };
            let applied =
                self.with_context(floor, |context| apply(loaded.record, command, context));
            if applied.changed {
                transaction.save(name, loaded.version, &applied.record)?;
                changed = true;
            }
            answers.push(Ok(applied));
        }
        transaction.commit()?;
        if changed {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answers)
    }

    /// Wakes those whose answer changed. Called outside the gate, so that they find it free.
    /// If the process dies before this, their timers do it.
    pub(crate) fn announce(&self, work: &Work, answers: &Answers) {
        for ((_, command), applied) in work.0.iter().zip(answers) {
            let Ok(applied) = applied else { continue };
            let asker = lease_of(command);
            for event in &applied.events {
                if Some(event.lease) != asker {
                    self.wakeups.send(event);
                }
            }
        }
    }
}

/// Answers where the files of the store are gone, so that what we held excludes nobody any more.
fn without(work: &Work, path: &Path, loss: &Loss) -> Result<Answers> {
    let answer = |(_, command): &(LockName, Command)| match command {
        Command::Renew { .. } | Command::Release { .. } => Ok(Ok(lost(loss.clone()))),
        _ => Err(gone(path)),
    };
    work.0.iter().map(answer).collect()
}

/// The answer to somebody who lost everything, made without a record.
fn lost(loss: Loss) -> Applied {
    let (record, outcome) = (Record::default(), Outcome::Gone(loss));
    Applied { record, changed: false, outcome, events: Vec::new() }
}

/// The lease that asks, which gets its answer directly.
fn lease_of(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.lease),
        Command::Renew { lease, .. }
        | Command::Convert { lease, .. }
        | Command::Release { lease }
        | Command::Withdraw { lease } => Some(*lease),
        Command::Evict { .. } | Command::Reap => None,
    }
}
