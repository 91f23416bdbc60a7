//! [`Link`]: the thread that has the connection.
//!
//! Its own thread and runtime: callers may be on any runtime or none, and a connection must not end
//! with the runtime that happened to open it.

pub(crate) mod answered;
mod call;
mod connect;
mod ear;
mod lane;
mod listener;
mod rest;
#[cfg(test)]
mod restart;
mod startup;
mod tidy;
mod tls;
mod watcher;
mod wire;

pub(crate) use call::{Call, Place};
pub(crate) use connect::Server;
pub(crate) use lane::Lane;

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::pace::Pace;
use sprag_core::wakeups::{Wakeups, step_aside};
use sprag_core::{Error, ErrorKind, Loss, Result};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use self::connect::{Connector, Line};
use self::ear::Ear;
use self::lane::Looked;
use crate::advisory::{TELL, Vital};
use crate::config::PostgresConfig;
use crate::error::{Misfit, error, misfit, no_answer};

/// Requests that wait to be sent; beyond that callers wait their turn.
const WAITING: usize = 1024;

/// How many requests for locks are under way at a time, and how many others. The server does one after the
/// other, so more would only make a renewal wait for them, and time run for those that it has not begun.
const UNDER_WAY: usize = 32;

/// What is said when something of ours panics, which must not be.
const DIED: &str = "what talks to PostgreSQL has died, and is started again: please report it";
/// How long to wait until that which listens is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Link {
    jobs: mpsc::Sender<Job>,
    desk: Arc<Desk>,
    /// The server's clock minus ours, in milliseconds, as of the last answer.
    skew: Arc<AtomicI64>,
    /// A forked child has a copy of this, but not the thread.
    process: u32,
}

/// What callers share with the thread.
struct Desk {
    connector: Connector,
    ear: Ear,
    pace: Pace,
    /// The same of requests for which the server waits for its disk.
    disk_pace: Pace,
    /// The places of requests for locks, and of all others but renewals.
    asking: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// Where this process is woken, and whether also for locks that are taken away.
    channel: String,
    hears_evictions: AtomicBool,
    /// The connection, while there is one.
    line: Mutex<Option<Arc<Line>>>,
    runtime: OnceLock<Handle>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("pace", &self.pace).finish_non_exhaustive()
    }
}

struct Job {
    call: Call,
    asked: Moment,
    answer: oneshot::Sender<Result<Vec<Row>>>,
}

type Answer = Result<Vec<Row>>;

/// Whether a request is under way, and does not just wait for its turn.
type Sent = Arc<AtomicBool>;

impl Desk {
    /// The connection, unless something is wrong with it.
    fn line(&self) -> Option<Arc<Line>> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.as_ref().filter(|line| !line.is_broken()).map(Arc::clone)
    }

    /// What is kept for the trail is told in the end.
    async fn tell_visits(&self) {
        let visits = self.ear.holdings.as_ref().and_then(|holdings| holdings.visits.take());
        if let (Some(line), Some(visits)) = (self.line(), visits) {
            let call = Call::new(TELL).with(visits, Type::TEXT_ARRAY);
            let told = line.ask(&self.connector.config, &call);
            let told = tokio::time::timeout(self.connector.config.timeout, told).await;
            tracing::debug!(target: "sprag::postgres", told = ?told.is_ok(), "the trail is told");
        }
    }

    fn set_line(&self, line: Option<Arc<Line>>) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// One request and its answer, and whether that told somebody else of this process something.
    async fn work(self: Arc<Self>, line: Arc<Line>, call: Call, sent: Sent) -> (Answer, bool) {
        let _turn = line.turn().await;
        sent.store(true, Ordering::Relaxed);
        let answer = line.ask(&self.connector.config, &call).await;
        let told = answer.iter().flatten().filter(|row| self.ear.hear(row)).count() > 0;
        (answer, told)
    }
}

/// Waits for an answer, on the thread. The caller may be gone; what it asked for is done all the same.
async fn finish(
    desk: Arc<Desk>,
    line: Arc<Line>,
    (key, sent): (Option<i64>, Sent),
    work: impl Future<Output = (Answer, bool)>,
    to: oneshot::Sender<Answer>,
) {
    let _errand = line.lane.errand();
    let patience = desk.connector.config.timeout;
    let answer = match tokio::time::timeout(patience, work).await {
        Ok((answer, _)) => answer,
        Err(_) if !sent.load(Ordering::Relaxed) => Err(error(
            ErrorKind::Busy,
            "too many requests of this process wait for the one connection that it has to a pool: \
             wait for fewer locks at once, or use the address of the server itself",
        )),
        Err(_) => {
            line.doubt(key);
            let what = format!("did not answer within {patience:?}");
            Err(no_answer(&desk.connector.config, &what))
        }
    };
    drop(to.send(answer));
}

impl Link {
    /// Starts the thread and connects; `opened` is told how that went.
    pub(crate) fn start(
        config: PostgresConfig,
        prepare: &'static [&'static str],
        channel: String,
        wakeups: Arc<Wakeups>,
        vital: Option<Vital>,
        opened: impl FnOnce(Result<Server>) + Send + 'static,
    ) -> Result<Self> {
        let holdings = vital.as_ref().map(|vital| Arc::clone(&vital.holdings));
        let ear = Ear { wakeups: Arc::clone(&wakeups), holdings };
        let connector = Connector::new(config, prepare, vital, wakeups)?;
        let (line, runtime) = (Mutex::default(), OnceLock::new());
        let (pace, disk_pace) = (Pace::new(), Pace::new());
        let [asking, others] = [(); 2].map(|()| Arc::new(Semaphore::new(UNDER_WAY)));
        let desk = Arc::new(Desk {
            connector,
            ear,
            pace,
            disk_pace,
            asking,
            others,
            channel,
            hears_evictions: AtomicBool::new(false),
            line,
            runtime,
        });
        let (jobs, inbox) = mpsc::channel(WAITING);
        let skew = Arc::new(AtomicI64::new(0));
        let measured = Arc::clone(&skew);
        let shared = Arc::clone(&desk);
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(e) => return opened(Err(no_runtime().caused_by(e))),
            };
            shared.runtime.get_or_init(|| runtime.handle().clone());
            let watcher = shared.ear.holdings.clone().map(|holdings| {
                let desk = Arc::clone(&shared);
                runtime
                    .spawn(again(move || watcher::watch(Arc::clone(&desk), Arc::clone(&holdings))))
            });
            let desk = Arc::clone(&shared);
            let tidier = runtime.spawn(again(move || tidy::tidy(Arc::clone(&desk))));
            let (mut inbox, mut opened) = (inbox, Some(opened));
            let mut serve = || runtime.block_on(serve(&shared, &mut inbox, &measured, &mut opened));
            while catch_unwind(AssertUnwindSafe(&mut serve)).is_err() {
                tracing::error!(target: "sprag::postgres", "{DIED}");
            }
            tidier.abort();
            runtime.block_on(shared.tell_visits());
            watcher.inspect(tokio::task::JoinHandle::abort);
            shared.set_line(None);
        };
        let started = std::thread::Builder::new().name("sprag-postgres".into()).spawn(work);
        started.map_err(|e| no_runtime().caused_by(e))?;
        Ok(Self { jobs, desk, skew, process: std::process::id() })
    }

    /// A forked child may not use it.
    pub(crate) fn ensure_own_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::lost(Loss::Forked))
    }

    /// Waits for the place of a request for a lock. Whoever gives up meanwhile has asked for nothing.
    pub(crate) async fn place(&self) -> Option<Place> {
        Place::of(&self.desk.asking).await
    }

    /// Asks the server.
    pub(crate) async fn ask(&self, mut call: Call) -> Answer {
        self.ensure_own_process()?;
        if call.place.is_none() && !call.renews {
            call.place = Place::of(&self.desk.others).await;
        }
        let ended = || error(ErrorKind::Unavailable, "the store was closed");
        let (answer, answered) = oneshot::channel();
        match (self.desk.line(), self.desk.runtime.get()) {
            (Some(line), Some(runtime)) => {
                let key = call.key;
                let pace = if call.durable { &self.desk.disk_pace } else { &self.desk.pace };
                let sent = Sent::default();
                let work = Arc::clone(&self.desk).work(Arc::clone(&line), call, Arc::clone(&sent));
                let mut work = Box::pin(work);
                if let Some((found, told)) = look(pace, &line, work.as_mut()).await {
                    if told {
                        step_aside().await;
                    }
                    return found;
                }
                runtime.spawn(finish(Arc::clone(&self.desk), line, (key, sent), work, answer));
            }
            _ => {
                let asked = call.place.as_ref().map_or_else(|| BootClock.now(), |it| it.asked);
                let job = Job { call, asked, answer };
                self.jobs.send(job).await.map_err(|_| ended())?;
            }
        }
        answered.await.map_err(|_| ended())?
    }

    /// An answer does not fit: it may be to somebody else, and so may be what comes after it.
    pub(crate) fn misfit(&self, why: &Misfit) -> Error {
        if let Some(line) = self.desk.line() {
            line.give_up();
        }
        misfit(&self.desk.connector.config, why)
    }

    /// Sleeps, on the thread: whoever asks may be on no runtime.
    pub(crate) async fn sleep(&self, duration: Duration) {
        if let Some(runtime) = self.desk.runtime.get() {
            // If it is aborted the thread has ended, and there is nothing to wait for.
            runtime.spawn(async move { tokio::time::sleep(duration).await }).await.ok();
        }
    }

    /// Until when, by the server's clock, a request that is sent now may be done.
    pub(crate) fn not_after_ms(&self) -> u64 {
        let now = i64::try_from(BootClock.now().as_millis()).unwrap_or(i64::MAX);
        let patience =
            i64::try_from(self.desk.connector.config.timeout.as_millis()).unwrap_or(i64::MAX);
        let until = now.saturating_add(self.skew.load(Ordering::Relaxed)).saturating_add(patience);
        u64::try_from(until).unwrap_or(0)
    }

    /// Learns the server's time from the answer to a request that was sent at `sent`.
    pub(crate) fn learn(&self, server_ms: u64, sent: Moment) {
        self.skew.store(skew(server_ms, sent), Ordering::Relaxed);
    }
}

/// Does something that never ends, and begins again if it dies.
async fn again<F: Future<Output = ()> + Send + 'static>(work: impl Fn() -> F) {
    while tokio::spawn(work()).await.is_err_and(|error| error.is_panic()) {
        tracing::error!(target: "sprag::postgres", "{DIED}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends a request, and looks for the answer for a moment if answers usually come that soon.
async fn look<F: Future>(pace: &Pace, line: &Line, mut work: Pin<&mut F>) -> Option<F::Output> {
    let how = pace.look();
    let asked = BootClock.now();
    let looking = poll_fn(|context| Poll::Ready(line.lane.look(work.as_mut(), context, how)));
    match looking.await {
        Looked::Found(answer) => {
            pace.found(BootClock.now().since(asked));
            return Some(answer);
        }
        Looked::InVain if how.is_some() => pace.in_vain(),
        Looked::InVain | Looked::Not => {}
    }
    None
}

fn skew(server_ms: u64, sent: Moment) -> i64 {
    let server = i64::try_from(server_ms).unwrap_or(i64::MAX);
    server.saturating_sub(i64::try_from(sent.as_millis()).unwrap_or(i64::MAX))
}

fn no_runtime() -> Error {
    error(ErrorKind::Unavailable, "no thread can be started: raise the limits of this process")
}

/// Connects, and connects anew where that is needed. Begun again after a panic, it goes on.
async fn serve(
    desk: &Arc<Desk>,
    inbox: &mut mpsc::Receiver<Job>,
    measured: &AtomicI64,
    opened: &mut Option<impl FnOnce(Result<Server>)>,
) {
    let connector = &desk.connector;
    if let Some(opened) = opened.take() {
        match connector.open().await {
            Ok(line) => {
                let (now_us, asked) = (line.server.now_us, line.server.asked);
                measured.store(skew(now_us / 1000, asked), Ordering::Relaxed);
                let server = line.server.clone();
                desk.set_line(Some(Arc::new(line)));
                opened(Ok(server));
            }
            Err(error) => return opened(Err(error)),
        }
    }
    let mut failed = Moment::START;
    while let Some(job) = inbox.recv().await {
        if desk.line().is_none() {
            desk.set_line(None);
            // Who asked before the last failure shares its answer: a server that hangs must not
            // make a crowd wait one after the other.
            let connected = if job.asked < failed {
                Err(no_answer(&connector.config, "could not be reached a moment ago"))
            } else {
                // Only a failure of its own counts: if a shared one did, each request of a crowd that asks
                // again and again would fail because of the one before it.
                connector.open().await.inspect_err(|_| failed = BootClock.now())
            };
            match connected {
                Ok(fresh) => {
                    let fresh = Arc::new(fresh);
                    desk.set_line(Some(Arc::clone(&fresh)));
                    if desk.hears_evictions.load(Ordering::SeqCst) {
                        listener::begin(desk, &fresh, None);
                    }
                }
                Err(error) => {
                    // The caller may be gone.
                    drop(job.answer.send(Err(error)));
                    continue;
                }
            }
        }
        if let Some(line) = desk.line() {
            let key = job.call.key;
            let sent = Sent::default();
            let work = Arc::clone(desk).work(Arc::clone(&line), job.call, Arc::clone(&sent));
            tokio::spawn(finish(Arc::clone(desk), line, (key, sent), work, job.answer));
        } else {
            let lost = no_answer(&connector.config, "ended the connection at once");
            drop(job.answer.send(Err(lost)));
        }
    }
}
