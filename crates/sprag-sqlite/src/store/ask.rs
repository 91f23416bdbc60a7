//! How a request gets to the database, and its answer back.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};

use sprag_core::record::{Command, Context, Outcome};
use sprag_core::{Error, ErrorKind, LeaseId, LockName, Loss, Operation, Result};

use super::{Inner, SqliteStore};
use crate::database::Database;
use crate::desk::{Answer, Answers, Desk, Work, hands_over};
use crate::error::{STORE, from_io, gone};

/// How often who gives a lock back looks again at a gate that is taken: it is so for about 50 us,
/// and calling the worker takes longer.
const GLANCES: u32 = 16;
/// How many commands are done on the caller's thread; about 20 us each.
const INLINE: usize = 8;

impl SqliteStore {
    pub(super) async fn run(&self, operation: Operation, work: Work) -> Result<Answers> {
        let inner = &*self.inner;
        inner.check_process()?;
        let result = match inner.try_inline(&work) {
            Some(result) => result,
            None if work.is_wish() => inner.patient.submit(work).await,
            None => inner.worker.submit(work).await,
        };
        inner.shared.tidy_if_due();
        result.map_err(|error| error.during(operation))
    }

    pub(super) async fn run_one(
        &self,
        operation: Operation,
        name: &LockName,
        command: Command,
    ) -> Result<Answer> {
        self.run_last(operation, name, vec![(name.clone(), command)]).await
    }

    /// Runs commands on one lock, of which the last one is answered.
    pub(super) async fn run_last(
        &self,
        operation: Operation,
        name: &LockName,
        commands: Vec<(LockName, Command)>,
    ) -> Result<Answer> {
        let answers = self.run(operation, Work::of(commands)).await;
        let lost = || Error::new(ErrorKind::Unavailable, operation, "no answer").at(STORE);
        let answer =
            answers.and_then(|answers| answers.into_iter().next_back().ok_or_else(lost)?);
        answer.map_err(|error| error.during(operation).on(name))
    }

    /// Before anything else is asked about a lease that was let in by its predecessor: that has to be
    /// written. If the lease `changes`, it does not let in its heir by itself any more.
    pub(super) async fn settle(
        &self,
        name: &LockName,
        lease: LeaseId,
        changes: bool,
    ) -> Result<()> {
        self.inner.check_process()?;
        let wakeups = &self.inner.shared.wakeups;
        if let Some(predecessor) = wakeups.predecessor_of(lease) {
            let command = Command::Release { lease: predecessor };
            self.run_one(Operation::Release, name, command).await?;
            wakeups.confirm(lease);
        }
        if changes {
            wakeups.leave(lease);
        }
        Ok(())
    }

    /// Runs a command whose lease may have to wait, and sees to it that it will be woken.
    pub(super) async fn run_waiting(
        &self,
        operation: Operation,
        name: &LockName,
        lease: LeaseId,
        command: impl Fn() -> Command + Send + Sync,
    ) -> Result<Answer> {
        let wakeups = &self.inner.shared.wakeups;
        let mut answer = self.run_one(operation, name, command()).await?;
        if matches!(answer.applied.outcome, Outcome::Queued { .. }) {
            match wakeups.listen() {
                // The lock may have been handed to us before anybody could tell us: look again.
                Ok(true) => answer = self.run_one(operation, name, command()).await?,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "no wake-ups for this process; timers do it");
                }
            }
        }
        if matches!(answer.applied.outcome, Outcome::Queued { .. }) {
            wakeups.watch(&answer.applied.record, &answer.before, lease);
        } else {
            wakeups.unwatch(lease);
        }
        Ok(answer)
    }

    /// Runs `read` with the connection for looking.
    pub(super) fn read<T>(
        &self,
        operation: Operation,
        read: impl FnOnce(&Database, &Context<'_>) -> Result<T>,
    ) -> Result<T> {
        let inner = &*self.inner;
        let run = || {
            inner.check_process()?;
            let mut reader = inner.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if !inner.shared.place.is_intact() {
                return Err(gone(&inner.shared.place.database, &Loss::StateLost));
            }
            let database = match &mut *reader {
                Some(database) => database,
                empty => empty.insert(Database::connect(&inner.shared.place.database)?),
            };
            inner.shared.with_context(|context| read(database, context))
        };
        run().map_err(|error| error.during(operation))
    }
}

impl Inner {
    /// A forked child has the parent's connection and session: it may use neither.
    pub(super) fn check_process(&self) -> Result<()> {
        if std::process::id() == self.shared.session.process {
            return Ok(());
        }
        Err(Error::lost(Loss::Forked).at(STORE))
    }

    /// Does small work on the caller's thread, if nobody else is inside the gate or waits for it.
    fn try_inline(&self, work: &Work) -> Option<Result<Answers>> {
        let wanted = !self.worker.is_idle()
            || (work.is_wish() && !self.patient.is_idle())
            || self.shared.gate_wanted.load(Ordering::Acquire);
        if work.commands.len() > INLINE || wanted {
            return None;
        }
        let mut desk = match self.inline.try_lock() {
            Ok(desk) => desk,
            // A panic in the middle rolled its transaction back.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let result = self.try_at(&mut desk, work)?;
        drop(desk);
        if result.as_ref().is_ok_and(|answers| hands_over(work, answers)) {
            // The kernel likes to wake who is told something on the core of who tells it, where it
            // would wait until our caller has nothing more to do.
            std::thread::yield_now();
        }
        Some(result)
    }

    fn try_at(&self, desk: &mut Desk, work: &Work) -> Option<Result<Answers>> {
        let Desk { database, gate } = desk;
        let mut entered = gate.try_enter();
        for _ in 0..if work.is_wish() { 0 } else { GLANCES } {
            if !matches!(entered, Ok(None)) {
                break;
            }
            std::thread::yield_now();
            entered = gate.try_enter();
        }
        Some(match entered {
            Ok(Some(_inside)) => self.shared.perform(database, work),
            Ok(None) => return None,
            Err(error) => Err(from_io("lock", &self.shared.place.gate, error)),
        })
    }
}
