//! [`churn`]: a process that takes and gives back a few locks, over and over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use sprag_core::{Client, ErrorKind, LockGuard, LockName, LockState, Loss, Result};

use super::guarded_file::{GuardedFile, Write};
use super::link::{Options, answer, nanos, open, trouble};
use super::protocol::Answer;
use crate::history::{Event, Op, Outcome, Recorder};

/// What a churning process does.
#[derive(Clone, Debug)]
pub struct Churn {
    /// How many locks there are. Fewer locks are harder fought over.
    pub locks: usize,
    /// Where the guarded files are.
    pub folder: PathBuf,
    /// The length of the leases.
    pub ttl: Duration,
    /// Whether the guarded files look at fences.
    pub checked: bool,
    /// Chooses among the ways to take and to give back.
    pub seed: u64,
}

/// What a churning process did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Grants.
    pub grants: u64,
    /// Grants that were lost before they were given back.
    pub lost: u64,
    /// Writes that the guarded file refused.
    pub rejected: u64,
    /// Requests that ended without a grant, by kind of error.
    pub failed: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds what another one did.
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.lost += other.lost;
        self.rejected += other.rejected;
        for (kind, count) in &other.failed {
            *self.failed.entry(kind.clone()).or_default() += count;
        }
    }
}

impl Churn {
    /// The locks by name.
    pub fn names(&self) -> Vec<LockName> {
        let name = |number| LockName::new(format!("churn-{number}")).expect("a short name is good");
        (0..self.locks).map(name).collect()
    }

    /// The file that a lock guards.
    pub fn file(&self, lock: &LockName) -> PathBuf {
        self.folder.join(format!("{lock}.counter"))
    }
}

/// Takes and gives back locks until `stop` resolves.
///
/// # Errors
///
/// When the store or a file cannot be opened.
pub async fn churn(
    options: Options,
    plan: &Churn,
    stop: impl Future<Output = ()> + Send,
) -> Result<Tally> {
    let (client, recorder) = open(&options)?;
    let files = plan.names().into_iter().map(|lock| {
        let file = GuardedFile::open(plan.file(&lock)).map_err(|error| trouble(&error))?;
        Ok((lock, file))
    });
    let mut worker = Worker {
        client,
        recorder,
        process: options.name,
        files: files.collect::<Result<_>>()?,
        plan,
        random: Rng::with_seed(plan.seed),
        tally: Tally::default(),
    };
    answer(0, Answer::Ready(std::process::id()));
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            // Dropped half-way when it is time to stop: the client cleans up.
            () = worker.round() => {}
        }
    }
    worker.client.shutdown(Duration::from_secs(5)).await;
    Ok(worker.tally)
}

struct Worker<'a> {
    client: Client,
    recorder: Option<Arc<Recorder>>,
    process: String,
    files: Vec<(LockName, GuardedFile)>,
    plan: &'a Churn,
    random: Rng,
    tally: Tally,
}

impl Worker<'_> {
    async fn round(&mut self) {
        let chosen = self.random.usize(..self.files.len());
        let sent = Recorder::now_ns();
        match self.take(chosen).await {
            Ok(Some(guard)) => {
                self.tally.grants += 1;
                let granted = self.event(&guard, Op::Granted).at(sent, Recorder::now_ns());
                self.record(granted.valid_until(nanos(guard.valid_until())));
                self.work(chosen, &guard).await;
                self.give_back(guard).await;
            }
            Ok(None) => {}
            Err(error) => {
                let kind = match error.kind() {
                    ErrorKind::Lost(loss) => format!("lost: {}", loss.as_str()),
                    kind => format!("{kind:?}").to_lowercase(),
                };
                *self.tally.failed.entry(kind).or_default() += 1;
            }
        }
    }

    /// Takes a lock in one of the ways there are; most of the time by waiting for it.
    async fn take(&mut self, chosen: usize) -> Result<Option<LockGuard>> {
        let request = self.client.lock(&self.files[chosen].0).ttl(self.plan.ttl);
        match self.random.u8(..20) {
            0 => request.try_acquire().await,
            1 => request.wait(Duration::from_millis(20)).acquire().await.map(Some),
            2 => {
                let patience = Duration::from_micros(self.random.u64(..5_000));
                let acquire = request.acquire();
                tokio::time::timeout(patience, acquire).await.ok().transpose()
            }
            _ => request.wait(Duration::from_secs(60)).acquire().await.map(Some),
        }
    }

    /// Adds one to the counter, as a holder does who never asks whether it still holds the lock.
    async fn work(&mut self, chosen: usize, guard: &LockGuard) {
        let now = Recorder::now_ns();
        self.record(self.event(guard, Op::Entered).at(now, now));
        let _section =
            Section { recorder: self.recorder.clone(), left: self.event(guard, Op::Left) };
        let fence = self.plan.checked.then(|| guard.fence());
        let read = self.files[chosen].1.read(fence).expect("the guarded file can be read");
        // Now and then long enough for a fault to meet it, or for the lease to be renewed.
        let hold = match self.random.u16(..512) {
            0 => self.plan.ttl.mul_f64(1.3),
            1..32 => Duration::from_millis(self.random.u64(..60)),
            _ => Duration::from_millis(1),
        };
        tokio::time::sleep(hold).await;
        if let Some(count) = read {
            self.write(chosen, guard, count + 1);
        } else {
            self.tally.rejected += 1;
        }
    }

    fn write(&mut self, chosen: usize, guard: &LockGuard, count: u64) {
        let sent = Recorder::now_ns();
        let wrote = self.event(guard, Op::Wrote).value(count);
        // If it is killed in between, nobody knows.
        self.record(wrote.clone().at(sent, sent).outcome(Outcome::Unknown));
        let fence = self.plan.checked.then(|| guard.fence());
        let written = self.files[chosen].1.write(fence, count);
        let outcome = match written.expect("the guarded file can be written") {
            Write::Accepted => Outcome::Accepted,
            Write::Rejected => {
                self.tally.rejected += 1;
                Outcome::Rejected
            }
        };
        self.record(wrote.at(sent, Recorder::now_ns()).outcome(outcome));
    }

    async fn give_back(&mut self, guard: LockGuard) {
        if let LockState::Lost(loss) = guard.state()
            && loss != Loss::Released
        {
            self.tally.lost += 1;
            let now = Recorder::now_ns();
            self.record(self.event(&guard, Op::Lost).at(now, now));
        }
        if self.random.u8(..5) == 0 {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            let kind = format!("release: {:?}", error.kind()).to_lowercase();
            *self.tally.failed.entry(kind).or_default() += 1;
        }
    }

    fn event(&self, guard: &LockGuard, op: Op) -> Event {
        Event::new(&self.process, guard.lease(), guard.name(), guard.mode(), op)
            .fence(guard.fence())
    }

    fn record(&self, event: Event) {
        if let Some(recorder) = &self.recorder {
            recorder.record(event).expect("a history with holes proves nothing");
        }
    }
}

/// A critical section; it is left before the lock is given back, also when it is time to stop.
struct Section {
    recorder: Option<Arc<Recorder>>,
    left: Event,
}

impl Drop for Section {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            let now = Recorder::now_ns();
            let left = self.left.clone().at(now, now);
            recorder.record(left).expect("a history with holes proves nothing");
        }
    }
}
