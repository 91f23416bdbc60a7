//! [`Link`]: the thread that has the connection.
//!
//! Its own thread and runtime: callers may be on any runtime or none, and the connection must not
//! end with the runtime that happened to open it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, ServerErrorKind, Value};
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::mailbox::Mailboxes;
use sprag_core::{Error, ErrorKind, Loss, Result};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::config::RedisConfig;
use crate::error::{error, from_redis, no_answer, strange_answer};
use crate::hello::Info;
use crate::listener::listen;
use crate::script::{ALL, Call};

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

#[derive(Debug)]
struct Job {
    call: Call,
    asked: Moment,
    answer: oneshot::Sender<Result<Value>>,
}

/// A connection, until something goes wrong with it.
#[derive(Clone)]
struct Line {
    connection: MultiplexedConnection,
    digests: Arc<[String; 3]>,
    broken: Arc<AtomicBool>,
}

impl Link {
    /// Starts the thread and connects; `opened` is told how that went.
    pub(crate) fn start(
        config: RedisConfig,
        channel: String,
        mailboxes: Arc<Mailboxes>,
        opened: impl FnOnce(Result<Info>) + Send + 'static,
    ) -> Result<Self> {
        let (jobs, inbox) = mpsc::channel(WAITING);
        let (wish, skew) = (Arc::new(Notify::new()), Arc::new(AtomicI64::new(0)));
        let timeout = config.timeout;
        let client = Client::open(config.connection()?);
        let client = client.map_err(|e| from_redis(&config.address, &e))?;
        let (wished, measured) = (Arc::clone(&wish), Arc::clone(&skew));
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(e) => return opened(Err(no_runtime().caused_by(e))),
            };
            let patience = config.timeout;
            runtime.block_on(async {
                let listener = listen(client.clone(), channel, patience, mailboxes, wished);
                let listener = tokio::spawn(listener);
                Desk { config, client, skew: measured }.serve(inbox, opened).await;
                listener.abort();
            });
        };
        let started = std::thread::Builder::new().name("sprag-redis".into()).spawn(work);
        started.map_err(|e| no_runtime().caused_by(e))?;
        Ok(Self { jobs, listen: wish, skew, timeout, process: std::process::id() })
    }

    /// Asks the server.
    pub(crate) async fn ask<T: FromRedisValue>(&self, call: Call) -> Result<T> {
        if self.process != std::process::id() {
            return Err(Error::lost(Loss::Forked));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { call, asked: BootClock.now(), answer };
        let ended = || error(ErrorKind::Unavailable, "the store was closed");
        self.jobs.send(job).await.map_err(|_| ended())?;
        let value = answered.await.map_err(|_| ended())??;
        T::from_redis_value(value).map_err(strange_answer)
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

/// What the thread works with.
struct Desk {
    config: RedisConfig,
    client: Client,
    skew: Arc<AtomicI64>,
}

impl Desk {
    async fn serve(self, mut inbox: mpsc::Receiver<Job>, opened: impl FnOnce(Result<Info>)) {
        let mut line = match self.connect().await {
            Ok((line, info)) => {
                opened(Ok(info));
                Some(line)
            }
            Err(error) => return opened(Err(error)),
        };
        let mut failed = Moment::START;
        while let Some(job) = inbox.recv().await {
            if line.as_ref().is_some_and(|line| line.broken.load(Ordering::Relaxed)) {
                line = None;
            }
            if line.is_none() {
                // Who asked before the last failure shares its answer: a server that hangs must
                // not make a crowd wait one after the other.
                let connected = if job.asked < failed {
                    Err(no_answer(&self.config.address, "could not be reached a moment ago"))
                } else {
                    self.connect().await
                };
                match connected {
                    Ok((fresh, _)) => line = Some(fresh),
                    Err(error) => {
                        failed = failed.max(BootClock.now());
                        // The caller may be gone.
                        drop(job.answer.send(Err(error)));
                        continue;
                    }
                }
            }
            if let Some(line) = &line {
                tokio::spawn(self.answer(line.clone(), job));
            }
        }
    }

    /// Connects, checks that the server may be used and teaches it the scripts.
    async fn connect(&self) -> Result<(Line, Info)> {
        let address = &self.config.address;
        let patience = self.config.timeout;
        let late =
            |_| no_answer(address, &format!("did not answer a connection within {patience:?}"));
        let connected = tokio::time::timeout(patience, async {
            // Each request has a limit of its own, below.
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let mut connection =
                self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
            Ok::<_, RedisError>((connection, Info::read(&info)))
        });
        let (mut connection, info) = match connected.await.map_err(late)? {
            Ok(connected) => connected,
            Err(e) => return Err(from_redis(address, &e)),
        };
        info.check(&self.config)?;
        let prepared = tokio::time::timeout(patience, async {
            let sent = BootClock.now();
            let (seconds, micros): (u64, u64) =
                redis::cmd("TIME").query_async(&mut connection).await?;
            self.skew.store(skew(seconds * 1000 + micros / 1000, sent), Ordering::Relaxed);
            let mut digests = Vec::new();
            for script in ALL {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
                digests.push(load.query_async::<String>(&mut connection).await?);
            }
            Ok::<_, RedisError>(digests)
        });
        let digests = match prepared.await.map_err(late)? {
            Ok(digests) => digests,
            Err(e) => return Err(from_redis(address, &e)),
        };
        let digests = <[String; 3]>::try_from(digests).map_err(|_| strange_answer("no digests"))?;
        let broken = Arc::new(AtomicBool::new(false));
        Ok((Line { connection, digests: Arc::new(digests), broken }, info))
    }

    /// One request and its answer.
    fn answer(&self, mut line: Line, job: Job) -> impl Future<Output = ()> + use<> {
        let (address, patience) = (self.config.address.clone(), self.config.timeout);
        async move {
            let asked = tokio::time::timeout(patience, async {
                let connection = &mut line.connection;
                let first = connection.send_packed_command(&job.call.command(&line.digests)).await;
                let forgotten = redis::ErrorKind::Server(ServerErrorKind::NoScript);
                match first.and_then(Value::extract_error) {
                    Err(e) if e.kind() == forgotten => {
                        let full = connection.send_packed_command(&job.call.in_full()).await;
                        full.and_then(Value::extract_error)
                    }
                    answered => answered,
                }
            });
            let answer = match asked.await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(e)) => {
                    if e.is_unrecoverable_error() || e.is_io_error() {
                        line.broken.store(true, Ordering::Relaxed);
                    }
                    Err(from_redis(&address, &e))
                }
                Err(_) => {
                    line.broken.store(true, Ordering::Relaxed);
                    Err(no_answer(&address, &format!("did not answer within {patience:?}")))
                }
            };
            // The caller may be gone; what it asked for is done all the same.
            drop(job.answer.send(answer));
        }
    }
}
