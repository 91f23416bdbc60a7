//! [`Link`]: the thread that has the connections.
//!
//! Its own thread and runtime: callers may be on any runtime or none, and a connection must not end
//! with the runtime that happened to open it.

mod connect;
mod listener;
mod startup;
mod tls;

pub(crate) use connect::{Half, Server};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::wakeups::Wakeups;
use sprag_core::{Error, ErrorKind, Loss, Result};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use self::connect::{Connector, Line};
use crate::advisory::Vital;
use crate::config::PostgresConfig;
use crate::error::{error, no_answer};

/// Requests that wait to be sent; beyond that callers wait their turn.
const WAITING: usize = 1024;

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Link {
    jobs: mpsc::Sender<Job>,
    listen: Arc<Notify>,
    /// The server's clock minus ours, in milliseconds, as of the last answer.
    skew: Arc<AtomicI64>,
    timeout: Duration,
    /// A forked child has a copy of this, but not the thread.
    process: u32,
}

/// One statement and what goes into it.
pub(crate) struct Call {
    pub(crate) statement: &'static str,
    pub(crate) parameters: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Call {
    pub(crate) const fn new(statement: &'static str) -> Self {
        Self { statement, parameters: Vec::new() }
    }

    pub(crate) fn text(self, text: impl Into<String>) -> Self {
        self.with(text.into(), Type::TEXT)
    }

    pub(crate) fn with(mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> Self {
        self.parameters.push((Box::new(value), of));
        self
    }
}

struct Job {
    call: Call,
    asked: Moment,
    answer: oneshot::Sender<Result<Vec<Row>>>,
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
        let connector = Connector::new(config, prepare, vital)?;
        let (jobs, inbox) = mpsc::channel(WAITING);
        let (listen, skew) = (Arc::new(Notify::new()), Arc::new(AtomicI64::new(0)));
        let timeout = connector.config.timeout;
        let (wish, measured) = (Arc::clone(&listen), Arc::clone(&skew));
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(e) => return opened(Err(no_runtime().caused_by(e))),
            };
            runtime.block_on(async {
                let listener = listener::listen(connector.clone(), channel, wakeups, wish);
                let listener = tokio::spawn(listener);
                serve(connector, inbox, measured, opened).await;
                listener.abort();
            });
        };
        let started = std::thread::Builder::new().name("sprag-postgres".into()).spawn(work);
        started.map_err(|e| no_runtime().caused_by(e))?;
        Ok(Self { jobs, listen, skew, timeout, process: std::process::id() })
    }

    /// Asks the server.
    pub(crate) async fn ask(&self, call: Call) -> Result<Vec<Row>> {
        if self.process != std::process::id() {
            return Err(Error::lost(Loss::Forked));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { call, asked: BootClock.now(), answer };
        let ended = || error(ErrorKind::Unavailable, "the store was closed");
        self.jobs.send(job).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// From now on wake-ups are listened for.
    pub(crate) fn listen(&self) {
        self.listen.notify_one();
    }

    /// Until when, by the server's clock, a request that is sent now may be done.
    pub(crate) fn not_after_ms(&self) -> u64 {
        let now = i64::try_from(BootClock.now().as_millis()).unwrap_or(i64::MAX);
        let patience = i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX);
        let until = now.saturating_add(self.skew.load(Ordering::Relaxed)).saturating_add(patience);
        u64::try_from(until).unwrap_or(0)
    }

    /// Learns the server's time from the answer to a request that was sent at `sent`.
    pub(crate) fn learn(&self, server_ms: u64, sent: Moment) {
        self.skew.store(skew(server_ms, sent), Ordering::Relaxed);
    }
}

fn skew(server_ms: u64, sent: Moment) -> i64 {
    let server = i64::try_from(server_ms).unwrap_or(i64::MAX);
    server.saturating_sub(i64::try_from(sent.as_millis()).unwrap_or(i64::MAX))
}

fn no_runtime() -> Error {
    error(ErrorKind::Unavailable, "no thread can be started: raise the limits of this process")
}

/// Passes requests on, and connects anew where that is needed.
async fn serve(
    connector: Connector,
    mut inbox: mpsc::Receiver<Job>,
    measured: Arc<AtomicI64>,
    opened: impl FnOnce(Result<Server>),
) {
    let sent = BootClock.now();
    let mut line = match connector.open().await {
        Ok(line) => {
            measured.store(skew(line.server.now_us / 1000, sent), Ordering::Relaxed);
            opened(Ok(line.server.clone()));
            Some(line)
        }
        Err(error) => return opened(Err(error)),
    };
    let mut failed = Moment::START;
    while let Some(job) = inbox.recv().await {
        line = line.take().filter(|line| !line.is_broken());
        if line.is_none() {
            // Who asked before the last failure shares its answer: a server that hangs must not
            // make a crowd wait one after the other.
            let connected = if job.asked < failed {
                Err(no_answer(&connector.config, "could not be reached a moment ago"))
            } else {
                connector.open().await
            };
            match connected {
                Ok(fresh) => line = Some(fresh),
                Err(error) => {
                    failed = failed.max(BootClock.now());
                    // The caller may be gone.
                    drop(job.answer.send(Err(error)));
                    continue;
                }
            }
        }
        if let Some(line) = &line {
            tokio::spawn(answer(line.clone(), connector.clone(), job));
        }
    }
}

/// One request and its answer.
async fn answer(line: Line, connector: Connector, job: Job) {
    let patience = connector.config.timeout;
    let answer = match tokio::time::timeout(patience, line.ask(&connector.config, &job.call)).await
    {
        Ok(answer) => answer,
        Err(_) => {
            line.doubt();
            let what = format!("did not answer within {patience:?}");
            Err(no_answer(&connector.config, &what))
        }
    };
    // The caller may be gone; what it asked for is done all the same.
    drop(job.answer.send(answer));
}
