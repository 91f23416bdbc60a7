//! The process's side: reads commands, obeys, answers.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use sprag_core::clock::{BootClock, Clock as _};
use sprag_core::entropy::OsEntropy;
use sprag_core::{
    Client, Error, LockGuard, LockName, LockRequest, LockState, Loss, Operation, PartyId, Released,
    Result,
};

use super::fork;
use super::guarded_file::{GuardedFile, Write};
use super::link::{Options, answer, nanos, open, read_orders, terminated, trouble};
use super::protocol::{Answer, Ask, Command, Granted, Order, Trouble};
use crate::history::{Event, Op, Outcome, Recorder};

struct Process {
    client: Client,
    recorder: Option<Arc<Recorder>>,
    name: String,
    /// All that one process does counts as one line of execution in deadlocks.
    party: PartyId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guards: HashMap<LockName, LockGuard>,
    /// What was read from a guarded file.
    read: HashMap<PathBuf, u64>,
    files: Vec<File>,
}

/// Obeys commands from standard input until it ends, or until SIGTERM; releases all then.
///
/// # Errors
///
/// When the store cannot be opened.
pub async fn serve(options: Options) -> Result<()> {
    let (client, recorder) = open(&options)?;
    let process = Arc::new(Process {
        client,
        recorder,
        name: options.name,
        party: PartyId::random(&OsEntropy),
        state: Mutex::default(),
    });
    let mut terminated = terminated()?;
    let mut orders = read_orders();
    answer(0, Answer::Ready(std::process::id()));
    loop {
        let order = tokio::select! {
            biased;
            _ = terminated.recv() => break,
            order = orders.recv() => order,
        };
        match order {
            None | Some(Order { command: Command::Exit, .. }) => break,
            Some(Order { command: Command::Abort, .. }) => std::process::abort(),
            Some(Order { id, command }) => {
                let process = Arc::clone(&process);
                tokio::spawn(async move {
                    let started = BootClock.now();
                    let outcome = process.obey(command).await.unwrap_or_else(|error| {
                        Answer::Failed(Trouble::new(&error, BootClock.now().since(started)))
                    });
                    answer(id, outcome);
                });
            }
        }
    }
    // In order: guards first, so that every lock is released and not only abandoned.
    drop(std::mem::take(&mut *process.state()));
    process.client.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

impl Process {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn obey(&self, command: Command) -> Result<Answer> {
        match command {
            Command::Acquire(ask) => {
                let sent = Recorder::now_ns();
                let guard = self.request(&ask).acquire().await?;
                Ok(self.keep(guard, sent))
            }
            Command::Try(ask) => {
                let sent = Recorder::now_ns();
                let guard = self.request(&ask).try_acquire().await?;
                Ok(guard.map_or(Answer::Held, |guard| self.keep(guard, sent)))
            }
            Command::Adopt(ticket) => {
                let sent = Recorder::now_ns();
                let guard = self.client.adopt(ticket).await?;
                Ok(self.keep(guard, sent))
            }
            Command::Rounds { locks, rounds, file } => self.rounds(&locks, rounds, file).await,
            Command::Release(lock) => {
                Ok(Answer::Released(match self.take(&lock)?.release().await? {
                    Released::Freed => None,
                    Released::AlreadyLost(loss) => Some(loss),
                }))
            }
            Command::Drop(lock) => {
                drop(self.take(&lock)?);
                Ok(Answer::Done)
            }
            Command::Extend(lock, ttl_ms) => {
                let mut guard = self.take(&lock)?;
                let extended = guard.extend(Duration::from_millis(ttl_ms)).await;
                self.state().guards.insert(lock, guard);
                extended.map(|()| Answer::Done)
            }
            Command::Detach(lock) => Ok(Answer::Ticket(self.take(&lock)?.into_ticket().await?)),
            Command::State(lock) => self.with(&lock, |guard| match guard.state() {
                LockState::Lost(loss) => Answer::Lost(loss),
                LockState::Held | LockState::Suspect => Answer::Held,
            }),
            Command::AwaitLoss(lock) => {
                let lost = self
                    .with(&lock, |guard| -> BoxFuture<'static, Loss> { Box::pin(guard.lost()) })?;
                Ok(Answer::Lost(lost.await))
            }
            Command::Read { lock, file, checked } => {
                let fence = self.with(&lock, LockGuard::fence)?;
                let count = GuardedFile::open(&file).and_then(|f| f.read(checked.then_some(fence)));
                let count = count.map_err(|error| trouble(&error))?;
                let count = count.ok_or_else(|| no_such("the fence was refused when reading"))?;
                self.state().read.insert(file, count);
                Ok(Answer::Count(count))
            }
            Command::Fork(lock) => fork::misdeeds_of_a_child(|| self.misuse(&lock))
                .await
                .map(Answer::Count)
                .map_err(|error| trouble(&error)),
            Command::Write { lock, file, checked } => self.write(&lock, &file, checked),
            Command::LockFile(path) => {
                let file = File::options().read(true).write(true).open(path);
                let locked = file.and_then(|file| file.lock().map(|()| file));
                self.state().files.push(locked.map_err(|error| trouble(&error))?);
                Ok(Answer::Done)
            }
            Command::UnlockFiles => {
                self.state().files.clear();
                Ok(Answer::Done)
            }
            Command::Exit | Command::Abort => Err(no_such("an end that can be answered")),
        }
    }

    fn request(&self, ask: &Ask) -> LockRequest {
        let ttl = Duration::from_millis(ask.ttl_ms);
        let request = self.client.lock(&ask.lock).mode(ask.mode).ttl(ttl).priority(ask.priority);
        let request = match ask.wait_ms {
            Some(wait) => request.wait(Duration::from_millis(wait)),
            None => request.wait_forever(),
        };
        let request = if ask.renew { request } else { request.no_renewal() };
        let request = if ask.detached { request.detached() } else { request };
        request.party(self.party)
    }

    /// Keeps a guard, and watches whether it is lost if that goes into a history.
    fn keep(&self, guard: LockGuard, sent: u64) -> Answer {
        let granted = Granted {
            lease: guard.lease(),
            fence: guard.fence(),
            t_send_ns: sent,
            t_recv_ns: Recorder::now_ns(),
            valid_until_ns: nanos(guard.valid_until()),
        };
        if let Some(recorder) = &self.recorder {
            let (recorder, lost, event) =
                (Arc::clone(recorder), guard.lost(), self.event(&guard, Op::Lost));
            self.record(
                self.event(&guard, Op::Granted)
                    .at(sent, granted.t_recv_ns)
                    .valid_until(granted.valid_until_ns),
            );
            tokio::spawn(async move {
                if lost.await != Loss::Released {
                    let now = Recorder::now_ns();
                    drop(recorder.record(event.at(now, now)));
                }
            });
        }
        self.state().guards.insert(guard.name().clone(), guard);
        Answer::Granted(granted)
    }

    fn event(&self, guard: &LockGuard, op: Op) -> Event {
        Event::new(&self.name, guard.lease(), guard.name(), guard.mode(), op).fence(guard.fence())
    }

    fn record(&self, event: Event) {
        if let Some(recorder) = &self.recorder {
            recorder.record(event).expect("a history with holes proves nothing");
        }
    }

    fn take(&self, lock: &LockName) -> Result<LockGuard> {
        self.state().guards.remove(lock).ok_or_else(|| no_such("a guard of that lock"))
    }

    fn with<T>(&self, lock: &LockName, look: impl FnOnce(&LockGuard) -> T) -> Result<T> {
        self.state().guards.get(lock).map(look).ok_or_else(|| no_such("a guard of that lock"))
    }

    /// Tries to use what a forked child has a copy of; counts what did not fail as it must.
    fn misuse(&self, lock: &LockName) -> u8 {
        let forked = |error: Error| error.loss() == Some(&Loss::Forked);
        let Ok(guard) = self.take(lock) else { return u8::MAX };
        let lost = [
            guard.state() == LockState::Lost(Loss::Forked),
            guard.ensure_valid().is_err_and(forked),
            // Refused at once: there is nobody in the child who could answer later.
            refused(self.client.inspect(lock)).is_some_and(forked),
            refused(self.client.lock("another").acquire()).is_some_and(forked),
            refused(guard.release()).is_some_and(forked),
        ];
        lost.into_iter().map(|lost| u8::from(!lost)).sum()
    }

    /// Writes as a careless holder does: without asking whether the lock is still held.
    fn write(&self, lock: &LockName, file: &PathBuf, checked: bool) -> Result<Answer> {
        let sent = Recorder::now_ns();
        let event = self.with(lock, |guard| self.event(guard, Op::Wrote))?;
        let fence = event.fence.unwrap_or_default();
        let read = self.state().read.remove(file);
        let count = read.ok_or_else(|| no_such("anything read from that file"))? + 1;
        let wrote = GuardedFile::open(file).and_then(|f| f.write(checked.then_some(fence), count));
        let accepted = wrote.map_err(|error| trouble(&error))? == Write::Accepted;
        let outcome = if accepted { Outcome::Accepted } else { Outcome::Rejected };
        self.record(event.at(sent, Recorder::now_ns()).value(count).outcome(outcome));
        Ok(Answer::Wrote { accepted, fence })
    }

    async fn rounds(&self, locks: &[LockName], rounds: u32, file: PathBuf) -> Result<Answer> {
        let file = GuardedFile::open(file).map_err(|error| trouble(&error))?;
        for _ in 0..rounds {
            let options = |request: LockRequest| request.wait(Duration::from_secs(60));
            let guards = self.client.acquire_many(locks, options).await?;
            let count = file.read(None).map_err(|error| trouble(&error))?.unwrap_or_default();
            tokio::task::yield_now().await;
            file.write(None, count + 1).map_err(|error| trouble(&error))?;
            guards.ensure_valid()?;
            guards.release().await?;
        }
        Ok(Answer::Count(rounds.into()))
    }
}

/// The error that the future has at once.
fn refused<T>(future: impl Future<Output = Result<T>>) -> Option<Error> {
    future.now_or_never()?.err()
}

fn no_such(what: &str) -> Error {
    Error::bad_input(Operation::Hold, format!("there is no {what}"))
}
