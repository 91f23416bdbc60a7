//! [`Connector`] and [`Line`]: a connection to a server that may be used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join_all;
use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::wakeups::Wakeups;
use sprag_core::{ErrorKind, Result};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::ear::{Hearer, Listening};
use super::lane::Lane;
use super::wire::{Grip, Wire};
use super::{Call, answered, startup, tls};
use crate::advisory::Vital;
use crate::config::{Address, PostgresConfig};
use crate::error::{error, from_postgres, misfit, no_answer, read_only};
use crate::schema;

/// The oldest version that has all we need: functions with SQL bodies.
const OLDEST: i32 = 140_000;

/// No operator in it, and only full names: the session may look for others first.
const HELLO: &str = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), \
     pg_catalog.current_setting('transaction_read_only')::boolean, \
     pg_catalog.current_setting('server_version_num')::integer, \
     pg_catalog.current_setting('server_version'), pg_catalog.current_setting('server_encoding'), \
     pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())";

/// From here on the session takes only PostgreSQL's own names for PostgreSQL's own.
const PIN: &str = "SET search_path = pg_catalog, pg_temp";

/// What the DBA may have set for all users is not meant for our session: requests are short, and
/// have a limit of ours. They are the same ones all the time, and find one row by its key: one plan
/// for each is enough, and it must not read a table that was small when it was made. Settings that the
/// server does not know are left out.
const SETTINGS: &str = "SELECT set_config(name, value, false) FROM pg_settings JOIN (VALUES \
     ('statement_timeout', $1), ('lock_timeout', $2), ('idle_session_timeout', '0'), \
     ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'), \
     ('default_transaction_isolation', 'read committed'), ('jit', 'off'), \
     ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), \
     ('application_name', 'sprag')) \
     AS ours(name, value) USING (name)";

/// How long a statement waits for a row that somebody keeps: all others of this process wait behind
/// it. Statements of ours have theirs for moments, or until the disk has it; where locks end with the
/// connection, not even that.
const ROW_PATIENCE: &str = "500ms";
const ROW_PATIENCE_WITH_LOCKS: &str = "250ms";

/// A statement that failed may have taken a session lock, which no rollback gives back.
const SWEEP: &str = "SELECT sprag.sweep_v1($1)::text";

/// How to connect.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) config: Arc<PostgresConfig>,
    /// The statements that are worth preparing.
    prepare: &'static [&'static str],
    tls: MakeRustlsConnect,
    /// For a connection whose session has locks.
    vital: Option<Vital>,
    /// For the others.
    wakeups: Arc<Wakeups>,
}

pub(crate) type Half = Connection<Wire, <MakeRustlsConnect as MakeTlsConnect<Wire>>::Stream>;

impl Connector {
    pub(super) fn new(
        config: PostgresConfig,
        prepare: &'static [&'static str],
        vital: Option<Vital>,
        wakeups: Arc<Wakeups>,
    ) -> Result<Self> {
        let tls = MakeRustlsConnect::new(tls::config(&config)?);
        Ok(Self { config: Arc::new(config), prepare, tls, vital, wakeups })
    }

    /// A bare connection, both halves of it, and a grip on its socket.
    async fn connect(&self) -> Result<(Client, Half, Grip)> {
        let config = self.config.connection();
        let host = match &self.config.address {
            Address::Tcp(host, _) => host,
            Address::Unix(..) => "localhost",
        };
        let connected = async {
            let wire = Wire::dial(&self.config).await.map_err(|e| {
                no_answer(&self.config, &format!("cannot be reached ({e})")).caused_by(e)
            })?;
            let grip = wire.grip();
            let tls = MakeTlsConnect::<Wire>::make_tls_connect(&mut self.tls.clone(), host);
            let tls = tls.map_err(|e| {
                error(ErrorKind::BadInput, format!("{host} is no name for TLS: {e}"))
            })?;
            let connected = config.connect_raw(wire, tls).await;
            let (client, half) = connected.map_err(|e| from_postgres(&self.config, e))?;
            Ok((client, half, grip))
        };
        self.in_time(connected).await
    }

    /// A connection to a server that may be used, with everything on it that we need.
    pub(super) async fn open(&self) -> Result<Line> {
        let (mut client, half, grip) = self.connect().await?;
        // It ends with its last user, or whoever waits for an answer is told.
        let life = self.vital.as_ref().map(Vital::life);
        let hearer = match &life {
            Some(life) => Hearer::Session(life.clone()),
            None => Hearer::Leases(Listening::new(Arc::clone(&self.wakeups))),
        };
        let lane = Arc::new(Lane::new(half, grip, hearer));
        let driven = Arc::clone(&lane);
        tokio::spawn(async move { driven.drive().await });
        let server = self.in_time(self.greet(&client)).await?;
        if !self.in_time(schema::exists(&client, &self.config)).await? {
            schema::make(&mut client, &self.config).await?;
        }
        self.in_time(schema::check(&client, &self.config)).await?;
        let prepared = self.in_time(self.prepare(&client, &server)).await?;
        let client = Arc::new(client);
        if let Some(life) = life {
            self.in_time(life.begin(&client, &self.config)).await?;
            let namespace = self.config.namespace.clone();
            let weak = Arc::downgrade(&lane);
            let kept = tokio::spawn(life.keep(Arc::downgrade(&client), weak, namespace));
            let weak = Arc::downgrade(&lane);
            tokio::spawn(async move {
                // A session without a pulse holds nothing.
                if kept.await.is_err_and(|error| error.is_panic()) {
                    weak.upgrade().inspect(|lane| lane.abandon());
                }
            });
        }
        let broken = Arc::new(AtomicBool::new(false));
        let has_locks = self.vital.is_some();
        let turn = server.pooled.then(Arc::default);
        Ok(Line { client, lane, prepared: Arc::new(prepared), server, broken, has_locks, turn })
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let patience = self.config.timeout;
        match tokio::time::timeout(patience, work).await {
            Ok(done) => done,
            Err(_) => {
                let what = format!("did not answer a connection within {patience:?}");
                Err(no_answer(&self.config, &what))
            }
        }
    }

    /// Finds out what the server is, and refuses one that cannot keep the promise.
    async fn greet(&self, client: &Client) -> Result<Server> {
        let config = &self.config;
        let refuse = |kind, message: String| Err(error(kind, message));
        let asked = BootClock.now();
        let row = answered::ask_one(client, config, HELLO, &[]).await?;
        let hello = Hello::read(&row).map_err(|e| misfit(config, &e.into()))?;
        let Hello { pid, standby, fixed, number, version, encoding, now_us } = hello;
        if number < OLDEST {
            let message = format!("{config} is PostgreSQL {version}: upgrade it to 14 or later");
            return refuse(ErrorKind::Unsupported, message);
        }
        if standby || fixed {
            return refuse(ErrorKind::Refused, read_only(config));
        }
        if encoding != "UTF8" {
            let message = format!(
                "{config} is encoded as {encoding}, and names of locks are UTF-8: use a database \
                 made with ENCODING 'UTF8'"
            );
            return refuse(ErrorKind::Unsupported, message);
        }
        // A pool makes the number up that it greets with.
        let pooled = startup::process_id(client).await != Some(pid);
        if pooled && self.vital.is_some() {
            let message = format!(
                "{config} is a connection pool such as PgBouncer, behind which advisory locks belong \
                 to nobody: use the address of the server itself, or mode=lease"
            );
            return refuse(ErrorKind::Refused, message);
        }
        Ok(Server { version, pooled, now_us, asked })
    }

    /// Makes the session ours. Behind a pool there is none: the next transaction may be on another
    /// connection, and what is set on this one would be somebody else's.
    async fn prepare(
        &self,
        client: &Client,
        server: &Server,
    ) -> Result<HashMap<&'static str, Statement>> {
        if server.pooled {
            return Ok(HashMap::new());
        }
        let failed = |e| from_postgres(&self.config, e);
        // What we no longer wait for need not be done either.
        let limit = self.config.timeout.as_millis().to_string();
        let patience = self.vital.as_ref().map_or(ROW_PATIENCE, |_| ROW_PATIENCE_WITH_LOCKS);
        let settings = [(&limit as _, Type::TEXT), (&patience as _, Type::TEXT)];
        // In this order, and without waiting in between.
        let (pinned, set) =
            tokio::join!(client.batch_execute(PIN), client.query_typed(SETTINGS, &settings));
        pinned.and(set).map_err(failed)?;
        let statements = self.prepare.iter().map(|text| client.prepare(text));
        let statements = try_join_all(statements).await.map_err(failed)?;
        Ok(self.prepare.iter().copied().zip(statements).collect())
    }
}

/// The answer to [`HELLO`].
struct Hello {
    pid: i32,
    standby: bool,
    fixed: bool,
    number: i32,
    version: String,
    encoding: String,
    now_us: u64,
}

impl Hello {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            pid: row.try_get(0)?,
            standby: row.try_get(1)?,
            fixed: row.try_get(2)?,
            number: row.try_get(3)?,
            version: row.try_get(4)?,
            encoding: row.try_get(5)?,
            now_us: micros(row.try_get(6)?),
        })
    }
}

fn micros(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|it| u64::try_from(it.as_micros()).ok())
        .unwrap_or(0)
}

/// What is known about a server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    /// Whether there is a connection pool in between, so that nothing lasts longer than a
    /// transaction.
    pub(crate) pooled: bool,
    /// Its clock, as it answered a question that was asked then.
    pub(super) now_us: u64,
    pub(super) asked: Moment,
}

/// A connection, until something goes wrong with it.
#[derive(Clone)]
pub(super) struct Line {
    client: Arc<Client>,
    pub(super) lane: Arc<Lane>,
    prepared: Arc<HashMap<&'static str, Statement>>,
    pub(super) server: Server,
    broken: Arc<AtomicBool>,
    /// Whether locks end with it.
    has_locks: bool,
    /// Behind a pool, whose turn it is: see [`answered`](super::answered).
    turn: Option<Arc<Mutex<()>>>,
}

impl Line {
    pub(super) fn is_broken(&self) -> bool {
        self.client.is_closed() || self.broken.load(Ordering::Relaxed)
    }

    /// An answer is late. Another connection may be faster, unless locks end with this one: then
    /// its pulse decides. What is late may fail half-way when nobody listens any more, so it is
    /// swept up, before anything else is asked.
    pub(super) fn doubt(&self, key: Option<i64>) {
        if !self.has_locks {
            return self.give_up();
        }
        let line = self.clone();
        let mut swept = Box::pin(async move { line.sweep(key).await });
        if (&mut swept).now_or_never().is_none() {
            tokio::spawn(swept);
        }
    }

    /// Lets go of the session locks that a failed statement has left. Who cannot knows no longer what
    /// it has.
    async fn sweep(&self, key: Option<i64>) {
        let touched: Vec<i64> = key.into_iter().collect();
        let asked = [(&touched as _, Type::INT8_ARRAY)];
        if self.client.query_typed(SWEEP, &asked).await.is_err() {
            self.give_up();
        }
    }

    /// Says something to the session that has no answer.
    pub(super) async fn tell(&self, statement: String) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&statement).await
    }

    /// Waits until nothing else is under way, if one may be at a time.
    pub(super) async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.turn {
            Some(turn) => Some(Arc::clone(turn).lock_owned().await),
            None => None,
        }
    }

    /// Uses it for nothing more, and takes care that nothing arrives later.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.lane.abandon();
    }

    pub(super) async fn ask(&self, config: &PostgresConfig, call: &Call) -> Result<Vec<Row>> {
        let asked = match self.prepared.get(call.statement) {
            _ if self.turn.is_some() => return self.ask_by_name(config, call).await,
            Some(statement) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    call.parameters.iter().map(|(value, _)| &**value as _).collect();
                self.client.query(statement, &values).await
            }
            None => self.client.query_typed(call.statement, &call.typed()).await,
        };
        let Err(error) = asked else { return asked.map_err(|e| from_postgres(config, e)) };
        if error.as_db_error().is_none() {
            self.give_up();
        } else if self.has_locks {
            self.sweep(call.key).await;
        }
        Err(from_postgres(config, error))
    }

    /// The same where an answer may be to somebody else.
    async fn ask_by_name(&self, config: &PostgresConfig, call: &Call) -> Result<Vec<Row>> {
        let name = answered::new_name();
        let mut values = call.typed();
        let statement = answered::named(call.statement, values.len());
        values.push((&name, Type::TEXT));
        let answer = self.client.query_typed(&statement, &values).await;
        // Whose error it is nobody knows, and what comes after it neither.
        let answer = answer.map_err(|e| from_postgres(config, e));
        let answer =
            answer.and_then(|rows| answered::ours(rows, &name).map_err(|why| misfit(config, &why)));
        answer.inspect_err(|_| self.give_up())
    }
}

#[cfg(test)]
impl Server {
    pub(crate) fn example() -> Self {
        Self { version: "15.0".into(), pooled: false, now_us: 0, asked: Moment::START }
    }
}
