//! [`Desk`] and [`Shared`]: where work is done, inside the gate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sprag_core::audit::{AuditEntry, audit_entries};
use sprag_core::clock::Clock;
use sprag_core::record::{
    Applied, Command, Context, EventKind, Expiry, Hold, Outcome, Record, Steal, apply,
};
use sprag_core::{Fence, LeaseId, LockName, Loss, Result, SessionId};

use crate::baton::{ForceCount, Heir};
use crate::cache::Taken;
use crate::database::Database;
use crate::error::{busy, from_io, gone};
use crate::gate::Gate;
use crate::open::{Times, note_start};
use crate::place;
use crate::queue::{Asker, Place, Reach, Standing};
use crate::rows::{Loaded, Transaction, is_conflict};
use crate::session::Session;
use crate::trail::Trail;
use crate::wake::Wakeups;

/// Waiters per lock.
pub(crate) const MAX_WAITERS: usize = 4096;
/// How often a transaction is tried again; more than once only if the gate file was deleted.
const TRIES: u32 = 8;

/// A connection with its own entrance to the gate.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) database: Database,
    pub(crate) gate: Gate,
}

impl Desk {
    pub(crate) fn open(place: &place::Place) -> Result<Self> {
        Ok(Self {
            database: Database::connect(&place.database)?,
            gate: Gate::open(&place.gate, place.sharing)
                .map_err(|e| from_io("open", &place.gate, e))?,
        })
    }
}

/// What is done in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Commands that are applied in this order.
    pub(crate) commands: Vec<(LockName, Command)>,
    /// Entries for the audit trail that only the client could write.
    pub(crate) notes: Vec<AuditEntry>,
    /// Whether all of its leases only wait for a lock.
    pub(crate) waits: bool,
}

impl Work {
    pub(crate) fn of(commands: Vec<(LockName, Command)>) -> Self {
        Self { commands, ..Self::default() }
    }

    /// Whether it only keeps what is held or waited for.
    pub(crate) fn is_renewal(&self) -> bool {
        let renews = |command: &Command| matches!(command, Command::Renew { .. });
        !self.commands.is_empty() && self.commands.iter().all(|(_, command)| renews(command))
    }

    /// Whether somebody only wants a lock, and nobody waits for what this would change.
    pub(crate) fn is_wish(&self) -> bool {
        let wants = |command: &Command| matches!(command, Command::Acquire(_));
        self.waits || self.commands.iter().all(|(_, command)| wants(command))
    }
}

/// What became of each command. Only a damaged record is an error of its own.
pub(crate) type Answers = Vec<Result<Answer>>;

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The record has the waiters that were read, and no more.
    pub(crate) applied: Applied,
    /// How many waiters were not read.
    pub(crate) unread: usize,
    /// The sessions right before the one that asks, if it waits; the nearest first.
    pub(crate) before: Vec<SessionId>,
    /// Where the one that asks waits.
    pub(crate) place: Option<Place>,
    /// The heir of who was let in by this.
    pub(crate) heir: Option<Heir>,
}

/// What the threads of one store handle share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: place::Place,
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wakeups: Wakeups,
    pub(crate) trail: Trail,
    pub(crate) force: ForceCount,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_free_records: u32,
    /// How many frames the log had after our last commit.
    pub(crate) frames: AtomicU32,
    /// Whether the housekeeping waits for the gate. Who finds the gate free stands behind it, or
    /// a busy thread would keep it out for ever.
    pub(crate) gate_wanted: AtomicBool,
    /// Whether the housekeeping is running.
    pub(crate) tidying: AtomicBool,
    /// How often it ran.
    pub(crate) tidied: AtomicU32,
}

impl Shared {
    /// Runs `with` with the world as it is now.
    pub(crate) fn with_context<T>(&self, with: impl FnOnce(&Context<'_>) -> T) -> T {
        with(&Context {
            now_ms: self.clock.now().as_millis(),
            expiry: Expiry::Clock,
            // A power cut may undo the last commits, fences among them: time still moves on.
            fence_floor: self.clock.unix_micros().min(Fence::MAX.get() - 1),
            max_waiters: MAX_WAITERS,
            is_dead: &|session| self.is_dead(session),
            is_silent: &|_| false,
        })
    }

    /// Whether another session is gone for good.
    fn is_dead(&self, session: SessionId) -> bool {
        // A missing file means dead only where our own is still to be seen: if the whole folder
        // was deleted or moved, everybody would look dead.
        self.session.is_dead(session) && self.session.is_intact()
    }

    /// Whether these are still the files that the others use, and our session one that they see.
    pub(crate) fn is_intact(&self) -> bool {
        self.place.is_intact() && self.session.is_intact()
    }

    /// Does the work. Called inside the gate.
    pub(crate) fn perform(&self, database: &Database, work: &Work) -> Result<Answers> {
        // Before we call anything ours: are these still the files that the others use? Giving
        // something back needs no such care.
        let claims = work.commands.iter().any(|(_, command)| claims(command));
        if claims && !self.place.is_intact() {
            return without(work, &self.place.database, &Loss::StateLost);
        }
        if claims && !self.session.is_intact() {
            // The others take this session for dead, and may hold what we believe to be ours.
            return without(work, self.session.path(), &Loss::SessionDied);
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
                result => {
                    if let Ok(answers) = &result {
                        // First of all, those who can go on now: they need not come here.
                        self.announce(work, answers);
                        let frames = database.frames.load(Ordering::Relaxed);
                        self.frames.store(frames, Ordering::Relaxed);
                        self.log(work, answers);
                    }
                    return result;
                }
            }
        }
        Err(busy(&self.place.database))
    }

    /// Tries to decide from the remembered record, with one statement instead of four.
    fn attempt_from_memory(&self, database: &Database, work: &Work) -> Result<Option<Applied>> {
        let [(name, command)] = &work.commands[..] else { return Ok(None) };
        if matches!(command, Command::Acquire(acquire) if acquire.session.is_none()) {
            return Ok(None);
        }
        let taken = database.cache.take(name, |record| self.concerns(record, command));
        let Some(Taken { version, text, record }) = taken else { return Ok(None) };
        let mut applied = self.with_context(|context| apply(record, command, context));
        // An answer without a write would be an answer from memory only, and a queue is written
        // in more than one statement.
        if !applied.changed {
            database.cache.remember(name, version, text, applied.record);
            return Ok(None);
        }
        let written = applied.record.waiters.is_empty()
            && database.replace(name, (version, &text), &mut applied.record)?;
        Ok(written.then_some(applied))
    }

    /// Whether a remembered record looks like one that the command changes without a look at other
    /// processes. If it does not, somebody else had the lock since, and trying is a waste.
    fn concerns(&self, remembered: &Record, command: &Command) -> bool {
        let mut holders = remembered.holders.iter();
        match (command, lease_of(command)) {
            (Command::Acquire(_), _) => holders.all(|h| h.session == Some(self.session.id)),
            (_, Some(_)) if has_detached(remembered) => false,
            (Command::Renew { rebind: Some(None), .. }, _) => false,
            (_, Some(lease)) => holders.any(|hold| hold.lease == lease),
            (_, None) => true,
        }
    }

    fn attempt(&self, database: &Database, work: &Work) -> Result<Answers> {
        if let Some(applied) = self.attempt_from_memory(database, work)? {
            let answer = Answer { applied, unread: 0, before: Vec::new(), place: None, heir: None };
            return Ok(vec![Ok(answer)]);
        }
        let transaction = database.begin()?;
        let mut answers = Answers::with_capacity(work.commands.len());
        for (name, command) in &work.commands {
            let place = lease_of(command).and_then(|lease| self.wakeups.place_of(lease));
            match self.with_context(|context| decide(&transaction, name, command, place, context)) {
                // One damaged record must not cost the other locks their renewal.
                Err(error) if error.is_corrupt() => answers.push(Err(error.on(name))),
                Err(error) => return Err(error),
                Ok(answer) => answers.push(Ok(answer)),
            }
        }
        let changed = answers.iter().flatten().filter(|answer| answer.applied.changed);
        if changed.map(|answer| &answer.applied.record).any(has_detached) {
            note_start(&transaction, Times::of(&*self.clock))?;
        }
        self.mark(work, &mut answers)?;
        transaction.commit()?;
        Ok(answers)
    }

    /// Sees to it that whoever passes a lock on cannot do so after force was used: see
    /// [`crate::baton`]. Called within the transaction, after it has read and before it is written.
    fn mark(&self, work: &Work, answers: &mut Answers) -> Result<()> {
        let forced = |command: &Command| matches!(command, Command::Acquire(acquire) if acquire.steal == Steal::Force);
        if work.commands.iter().any(|(_, command)| forced(command)) {
            self.force.raise().map_err(|e| from_io("write", &self.place.force, e))?;
        }
        for answer in answers.iter_mut().flatten() {
            if answer.applied.let_in.is_some() && answer.applied.record.heir.is_some() {
                let mark = self.force.mark();
                answer.heir = mark.and_then(|mark| Heir::of(&answer.applied.record, mark));
            }
        }
        Ok(())
    }

    /// Adds to the audit trail what was done. Called inside the gate.
    fn log(&self, work: &Work, answers: &Answers) {
        let unix_micros = self.clock.unix_micros();
        let mut entries = Vec::new();
        for ((name, _), answer) in work.commands.iter().zip(answers) {
            let Ok(answer) = answer else { continue };
            entries.extend(audit_entries(name, &answer.applied, unix_micros / 1000));
        }
        entries.extend_from_slice(&work.notes);
        self.trail.append(&entries, unix_micros);
    }

    /// Wakes those whose answer changed. If the process dies before this, their timers do it.
    fn announce(&self, work: &Work, answers: &Answers) {
        for ((_, command), answer) in work.commands.iter().zip(answers) {
            let Ok(answer) = answer else { continue };
            let asker = lease_of(command);
            for event in &answer.applied.events {
                if Some(event.lease) != asker {
                    let holds = |hold: &Hold| hold.lease == event.lease;
                    let heir =
                        answer.heir.filter(|_| answer.applied.record.holders.iter().any(holds));
                    self.wakeups.send(event, heir);
                }
            }
        }
    }
}

/// Applies one command to one lock, and writes what became of it.
pub(crate) fn decide(
    transaction: &Transaction<'_>,
    name: &LockName,
    command: &Command,
    place: Option<Place>,
    context: &Context<'_>,
) -> Result<Answer> {
    let asker = lease_of(command).map(|lease| Asker { lease, place });
    let mut loaded = transaction.load(name, Reach::Near(asker))?;
    if !loaded.window.suffices(command, &loaded.record, context.now_ms) {
        loaded = transaction.load(name, Reach::All)?;
    }
    let limit = loaded.record.limit;
    let mut applied = apply_within(transaction, &mut loaded, command, context)?;
    if !loaded.window.sufficed(limit, &applied) {
        loaded = transaction.load(name, Reach::All)?;
        applied = apply_within(transaction, &mut loaded, command, context)?;
    }
    if applied.changed {
        if let Some(priority) = applied.let_in {
            applied.record.promise(context.fence_floor, priority);
        }
        transaction.save(name, loaded.row, &loaded.window, &mut applied.record)?;
    }
    let unread = loaded.window.unread;
    let (mut before, mut place) = (Vec::new(), None);
    if let (Command::Acquire(acquire), Outcome::Queued { ahead }) = (command, &mut applied.outcome)
    {
        place = applied.record.waiters.iter().find(|w| w.lease == acquire.lease).map(Place::from);
        let standing = match (loaded.row, place) {
            (Some(row), Some(place)) if unread > 0 => {
                transaction.standing(row.id, place, applied.record.waiters.len() + unread)?
            }
            _ => Standing::within(&applied.record, *ahead),
        };
        (*ahead, before) = (standing.ahead, standing.before);
    }
    Ok(Answer { applied, unread, before, place, heir: None })
}

/// Takes the record out of `loaded`.
fn apply_within(
    transaction: &Transaction<'_>,
    loaded: &mut Loaded,
    command: &Command,
    context: &Context<'_>,
) -> Result<Applied> {
    let floor = match loaded.row {
        Some(_) => 0,
        // It may have had a record before a clean-up.
        None => transaction.high_water()?.saturating_add(1),
    };
    let context = Context {
        fence_floor: context.fence_floor.max(floor),
        max_waiters: context.max_waiters.saturating_sub(loaded.window.unread),
        ..*context
    };
    Ok(apply(std::mem::take(&mut loaded.record), command, &context))
}

/// Whether a lease outlives its process: until a time of day, which is to be known after a reboot.
fn has_detached(record: &Record) -> bool {
    record.holders.iter().any(|hold| hold.session.is_none())
}

/// Whether the answer may make somebody believe that a lock is theirs.
const fn claims(command: &Command) -> bool {
    matches!(command, Command::Acquire(_) | Command::Renew { .. } | Command::Convert { .. })
}

/// Answers where the files of the store are gone, so that what we held excludes nobody any more.
fn without(work: &Work, path: &Path, loss: &Loss) -> Result<Answers> {
    tracing::error!(path = %path.display(), "a file of the lock store was deleted while in use");
    let answer = |(_, command): &(LockName, Command)| match command {
        Command::Renew { .. } => Ok(Ok(Answer {
            applied: Applied {
                record: Record::default(),
                changed: false,
                outcome: Outcome::Gone(loss.clone()),
                events: Vec::new(),
                let_in: None,
            },
            unread: 0,
            before: Vec::new(),
            place: None,
            heir: None,
        })),
        _ => Err(gone(path, loss)),
    };
    work.commands.iter().map(answer).collect()
}

/// Whether somebody else got a lock by this.
pub(crate) fn hands_over(work: &Work, answers: &Answers) -> bool {
    work.commands.iter().zip(answers).any(|((_, command), answer)| {
        let events = answer.iter().flat_map(|answer| &answer.applied.events);
        let mut granted = events.filter(|event| event.kind == EventKind::Granted);
        granted.any(|event| Some(event.lease) != lease_of(command))
    })
}

/// The lease that asks, which gets its answer directly.
pub(crate) fn lease_of(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.lease),
        Command::Renew { lease, .. }
        | Command::Convert { lease, .. }
        | Command::Release { lease }
        | Command::Withdraw { lease } => Some(*lease),
        Command::Evict { .. } | Command::Reap => None,
    }
}
