//! [`Worker`]: requests that found the gate taken wait for it here, off the caller's thread.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sprag_core::{ErrorKind, Result};
use tokio::sync::oneshot;

use crate::database::Database;
use crate::desk::{Answers, Desk, Shared, Work};
use crate::error::{busy, error, from_io};
use crate::gate::{Gate, Inside};

/// How many jobs are done before other processes get the gate.
const BATCH: usize = 64;
/// Into how many steps the patience of a job is divided.
const TICKS: u64 = 8;

/// One thread that waits for the gate, and one that answers those who waited too long.
///
/// Both are started when they are first needed.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// Whether it goes through the lobby.
    patient: bool,
}

#[derive(Debug)]
struct Job {
    work: Work,
    reply: oneshot::Sender<Result<Answers>>,
    /// When it came, in ticks.
    tick: u64,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Told to the worker: there is a job.
    filled: Condvar,
    /// Told to the timer: there is a job to be timed.
    timed: Condvar,
    /// Jobs that are not answered yet, readable without the mutex.
    unanswered: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    started: bool,
    stopped: bool,
    /// Whether the timer is counting.
    ticking: bool,
    tick: u64,
}

impl State {
    /// Renewals go ahead of everything, in their order: a lock that is lost is worse than one that
    /// is free a little later. It never overtakes another renewal, so the last TTL and session asked
    /// for a lease count; a release or conversion of the lease that it overtakes is done behind it.
    fn add(&mut self, job: Job) {
        if job.work.is_renewal() {
            let place = self.jobs.partition_point(|other| other.work.is_renewal());
            self.jobs.insert(place, job);
        } else {
            self.jobs.push_back(job);
        }
    }

    /// Takes out those that have waited for all their ticks. A job may have come just before a
    /// tick: one more than its share is a full timeout.
    fn take_overdue(&mut self) -> Vec<Job> {
        let now = self.tick;
        let (overdue, jobs) = self.jobs.drain(..).partition(|job| now - job.tick > TICKS);
        self.jobs = jobs;
        Vec::from(overdue)
    }
}

impl Worker {
    /// A worker for what others wait for.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, queue: Arc::default(), patient: false }
    }

    /// A worker for wishes.
    pub(crate) fn patient(shared: Arc<Shared>) -> Self {
        Self { shared, queue: Arc::default(), patient: true }
    }

    /// Whether nobody waits here. Who finds the gate free still stands behind those who wait, or
    /// a busy thread would keep them out for ever.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.unanswered.load(Ordering::Acquire) == 0
    }

    /// Does the work as soon as the gate is free.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the work is done before the drop returns, or in the gate's
    /// current turn, or never: the worker looks whether its caller is still there *after* it
    /// entered the gate. A later request for the same lease enters the gate after that turn and
    /// so cannot be overtaken.
    pub(crate) async fn submit(&self, work: Work) -> Result<Answers> {
        let (reply, answer) = oneshot::channel();
        self.push(work, reply)?;
        let gone = || error(ErrorKind::Unavailable, "the worker thread of the store is gone");
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn push(&self, work: Work, reply: oneshot::Sender<Result<Answers>>) -> Result<()> {
        let mut state = self.queue.lock();
        if !state.started {
            self.start()?;
            state.started = true;
        }
        let tick = state.tick;
        state.add(Job { work, reply, tick });
        self.queue.unanswered.fetch_add(1, Ordering::AcqRel);
        if !state.ticking {
            self.queue.timed.notify_one();
        }
        drop(state);
        self.queue.filled.notify_one();
        Ok(())
    }

    fn start(&self) -> Result<()> {
        let place = &self.shared.place;
        let mut desk = Desk::open(place)?;
        let lobby = || {
            let opened = Gate::open(&place.lobby, place.sharing);
            opened.map_err(|e| from_io("open", &place.lobby, e))
        };
        let [lobby, watched] =
            [self.patient.then(lobby).transpose()?, self.patient.then(lobby).transpose()?];
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
            spawned
                .map(drop)
                .map_err(|e| from_io("start a thread for", &self.shared.place.database, e))
        };
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let serve = move || while queue.serve(&shared, &mut desk, lobby.as_ref()) {};
        spawn("sprag-sqlite", Box::new(serve))?;
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let mut calls = 0;
        let time = move || while queue.time(&shared, watched.as_ref(), &mut calls) {};
        spawn("sprag-timer", Box::new(time))
    }

    /// Tells the threads to end, without waiting: one may be stuck at the gate for long.
    pub(crate) fn stop(&self) {
        let mut state = self.queue.lock();
        state.stopped = true;
        state.jobs.clear();
        self.queue.filled.notify_all();
        self.queue.timed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(on: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        on.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the worker: wait for jobs, wait for the gate, do the jobs.
    fn serve(&self, shared: &Shared, desk: &mut Desk, lobby: Option<&Gate>) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.stopped {
            state = Self::wait(&self.filled, state);
        }
        if state.stopped {
            return false;
        }
        drop(state);
        // Without a lobby it works as well, only not as smoothly.
        let _called = lobby.map(Gate::be_called);
        let entered = desk.gate.enter();
        self.work(shared, &desk.database, entered);
        true
    }

    /// Does the jobs that are still there.
    fn work(&self, shared: &Shared, database: &Database, entered: io::Result<Inside<'_>>) {
        // Only what is still in the queue now is done. The timer takes out what waited too long,
        // under the same mutex: a job is either answered as busy or done, never both.
        let mut state = self.lock();
        let count = state.jobs.len().min(BATCH);
        let jobs: Vec<_> = state.jobs.drain(..count).collect();
        drop(state);
        let mut finished = Vec::with_capacity(jobs.len());
        for job in jobs {
            // See `submit`: this must be asked inside the gate.
            if job.reply.is_closed() {
                self.unanswered.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let result = match &entered {
                Ok(_) => shared.perform(database, &job.work),
                Err(error) => {
                    let error = io::Error::new(error.kind(), error.to_string());
                    Err(from_io("lock", &shared.place.gate, error))
                }
            };
            finished.push((job, result));
        }
        // Answers go out after the gate is free, so that nobody runs into it.
        drop(entered);
        for (job, result) in finished {
            self.unanswered.fetch_sub(1, Ordering::AcqRel);
            // The caller may have gone meanwhile; then it releases by its lease id.
            drop(job.reply.send(result));
        }
    }

    /// Does the jobs without the worker, which stands in the lobby behind a process that was
    /// stopped there, if the gate is free.
    fn go_around(&self, shared: &Shared) -> Result<()> {
        let desk = Desk::open(&shared.place)?;
        match desk.gate.try_enter() {
            Ok(None) => {}
            Ok(Some(inside)) => self.work(shared, &desk.database, Ok(inside)),
            Err(error) => return Err(from_io("lock", &shared.place.gate, error)),
        }
        Ok(())
    }

    /// One turn of the timer: sleep while there is nothing to time, else let a tick pass and
    /// answer those who waited for all their ticks. It sleeps on through most short waits.
    fn time(&self, shared: &Shared, lobby: Option<&Gate>, calls: &mut u64) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.stopped {
            state.ticking = false;
            state = Self::wait(&self.timed, state);
        }
        state.ticking = true;
        let tick = shared.busy_timeout / u32::try_from(TICKS).unwrap_or(1);
        let tick = tick.max(Duration::from_millis(1));
        let (mut state, _) = self
            .timed
            .wait_timeout_while(state, tick, |state| !state.stopped)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            return false;
        }
        state.tick += 1;
        let now = state.tick;
        for job in state.take_overdue() {
            self.unanswered.fetch_sub(1, Ordering::AcqRel);
            drop(job.reply.send(Err(busy(&shared.place.database))));
        }
        let late = state.jobs.iter().any(|job| now - job.tick > 1);
        drop(state);
        let Some(lobby) = lobby else { return true };
        let before = std::mem::replace(calls, lobby.calls());
        if late
            && before == *calls
            && let Err(error) = self.go_around(shared)
        {
            tracing::debug!(%error, "could not go around the lobby");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Job, State, TICKS};
    use crate::desk::Work;
    use sprag_core::record::Command;
    use sprag_core::{LeaseId, LockName};
    use tokio::sync::oneshot;

    fn job(command: Command, tick: u64) -> Job {
        let work = Work::of(vec![(LockName::new("report").unwrap(), command)]);
        Job { work, reply: oneshot::channel().0, tick }
    }

    fn release(number: u128) -> Command {
        Command::Release { lease: LeaseId::from_u128(number) }
    }

    fn renew(number: u128) -> Command {
        Command::Renew { lease: LeaseId::from_u128(number), ttl_ms: 1, rebind: None }
    }

    fn commands<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<Command> {
        jobs.into_iter().map(|job| job.work.commands[0].1.clone()).collect()
    }

    #[test]
    fn renewals_go_ahead_in_their_order() {
        let mut state = State::default();
        for command in [release(1), renew(2), release(3), renew(4), Command::Reap, renew(5)] {
            state.add(job(command, 0));
        }
        // Notes for the trail renew nothing.
        assert!(!Work::default().is_renewal());
        let order = [renew(2), renew(4), renew(5), release(1), release(3), Command::Reap];
        assert_eq!(commands(&state.jobs), order);
    }

    #[test]
    fn who_waits_behind_a_renewal_is_told_in_time() {
        let mut state = State { tick: TICKS + 1, ..State::default() };
        state.add(job(release(1), 0));
        state.add(job(renew(2), TICKS));
        state.add(job(release(3), 1));
        assert_eq!(commands(&state.take_overdue()), [release(1)]);
        assert_eq!(commands(&state.jobs), [renew(2), release(3)]);
    }
}
