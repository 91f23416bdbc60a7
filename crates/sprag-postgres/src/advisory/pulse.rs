//! [`Pulse`]: whether the session that has the locks is alive, and [`Vital`], which keeps it so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sprag_core::clock::{BootClock, Clock, Moment};
use sprag_core::entropy::OsEntropy;
use sprag_core::{Result, SessionId};
use tokio::sync::Notify;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::bare::TELL;
use super::holdings::Holdings;
use crate::config::PostgresConfig;
use crate::error::from_postgres;
use crate::link::Lane;

/// How often the server is asked whether it still knows us.
const BEAT: Duration = Duration::from_secs(1);
/// So long after a question that was answered the server has not given us up: half of the time that
/// the keepalives of [`KEEPALIVES`] take, 11 s.
const SURE: Duration = Duration::from_millis(5_500);

/// When the server gives up a client that is gone. The defaults of most systems are two hours.
const KEEPALIVES: &str = "SELECT set_config(name, value, false) FROM (VALUES \
     ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '2'), \
     ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '11000')) AS ours(name, value)";
const BEGIN: &str = "SELECT sprag.begin_session_v1($1)::text";
const ENTER: &str = "SELECT sprag.enter_v1($1, $2)::text";
const BEAT_ONCE: &str = "SELECT sprag.beat_v1($1)::text";
const LET_GO: &str = "SELECT sprag.let_go_v1($1, $2)::text";
/// What a session is told that has a lock without right.
const URGED: &str = "let go";
/// What a notification begins with that is about a lease whose lock was taken away.
const EVICTED: &str = "evicted ";
/// What a session is told that has a lock bare; then comes its key, or nothing if all are meant.
const WRITE: &str = "write ";

/// The session of the connection that has the locks.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beat: Mutex<Beat>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Beat {
    session: String,
    until: Moment,
    /// The session that was there last, which may be this one.
    last: String,
}

impl Pulse {
    /// Whether a session is sure to have its locks.
    pub(crate) fn is_sure(&self, session: &str) -> bool {
        let beat = self.beat();
        beat.session == session && BootClock.now() < beat.until
    }

    /// Waits until a session has ended.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn begin(&self, session: &str, sent: Moment) {
        let (session, last) = (session.to_owned(), session.to_owned());
        *self.beat() = Beat { session, until: sent.plus(SURE), last };
    }

    fn answered(&self, session: &str, sent: Moment) {
        let mut beat = self.beat();
        if beat.session == session {
            beat.until = sent.plus(SURE);
        }
    }

    fn end(&self, session: &str) {
        let mut beat = self.beat();
        if beat.session == session {
            (beat.session, beat.until) = Default::default();
        }
        drop(beat);
        self.ended.notify_one();
    }

    /// Nothing is held any more in the session that was there last.
    fn give_up(&self) -> String {
        let last = self.beat().last.clone();
        self.end(&last);
        last
    }

    fn beat(&self) -> MutexGuard<'_, Beat> {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection needs that has locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vital {
    pub(crate) holdings: Arc<Holdings>,
}

/// One connection's session.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    vital: Vital,
    session: String,
    urged: Arc<Notify>,
    /// The keys of bare locks that others want.
    wanted: Arc<Mutex<Vec<i64>>>,
}

impl Vital {
    /// The session of a new connection.
    pub(crate) fn life(&self) -> Life {
        let session = SessionId::random(&OsEntropy).to_string();
        Life { vital: self.clone(), session, urged: Arc::default(), wanted: Arc::default() }
    }
}

impl Life {
    /// Takes in what the server tells this session.
    pub(crate) fn hear(&self, payload: &str) {
        if let Some(key) = payload.strip_prefix(WRITE) {
            let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.extend(key.parse::<i64>());
            drop(wanted);
            self.urged.notify_one();
        } else if payload == URGED {
            self.urged.notify_one();
        } else if payload.starts_with(EVICTED) {
            self.vital.holdings.wakeups.hear(payload);
        } else {
            self.wake(payload);
        }
    }

    /// How many of this process may wait for what is told to this session.
    pub(crate) fn waiters(&self) -> usize {
        self.vital.holdings.wakeups.mailboxes.count()
    }

    /// The connection has ended, and the locks with it.
    pub(crate) fn end(&self) {
        self.vital.holdings.pulse.end(&self.session);
    }

    /// The lease, a colon, the fence. From another session it is only a hint: the session lock is
    /// still to be taken. Without a fence it may also mean that a promise was taken back by force.
    fn wake(&self, payload: &str) {
        let wakeups = &self.vital.holdings.wakeups;
        let Some(lease) = payload.split(':').next().and_then(|lease| lease.parse().ok()) else {
            return wakeups.mailboxes.notify_all();
        };
        if payload.ends_with(":0") {
            wakeups.take_back(lease);
        }
        wakeups.mailboxes.notify(lease);
    }

    /// Makes the session known.
    pub(crate) async fn begin(&self, client: &Client, config: &PostgresConfig) -> Result<()> {
        let failed = |e| from_postgres(config, e);
        client.query_typed(KEEPALIVES, &[]).await.map_err(failed)?;
        let sent = BootClock.now();
        client.query_typed(BEGIN, &[(&self.session, Type::TEXT)]).await.map_err(failed)?;
        let last = self.vital.holdings.pulse.give_up();
        let entered = [(&config.namespace as _, Type::TEXT), (&last as _, Type::TEXT)];
        client.query_typed(ENTER, &entered).await.map_err(failed)?;
        // The name is made of letters and digits only.
        let subscribe = format!("LISTEN sprag_{}; LISTEN sprag_evicted", self.session);
        client.batch_execute(&subscribe).await.map_err(failed)?;
        self.vital.holdings.pulse.begin(&self.session, sent);
        self.vital.holdings.wakeups.hear_gap();
        Ok(())
    }

    /// Asks now and then, as long as the connection is used, and ends it if there is no answer: who
    /// is not sure to have a lock has none.
    pub(crate) async fn keep(self, client: Weak<Client>, lane: Weak<Lane>, namespace: String) {
        let holdings = &self.vital.holdings;
        loop {
            tokio::select! {
                () = tokio::time::sleep(BEAT) => {}
                () = self.urged.notified() => {}
            }
            let Some(client) = client.upgrade() else { return };
            let sent = BootClock.now();
            match tokio::time::timeout(SURE, self.beat(&client, &namespace)).await {
                Ok(Ok(())) => holdings.pulse.answered(&self.session, sent),
                // Whoever takes a session for dead may be right until it has noted that it lives.
                Ok(Err(error)) if error.as_db_error().is_some() => {
                    tracing::warn!(target: "sprag::postgres", %error, "the session is not checked");
                }
                Ok(Err(_)) | Err(_) => {
                    lane.upgrade().inspect(|lane| lane.abandon());
                    return;
                }
            }
        }
    }

    /// Writes down what is bare, and lets go of what this session has no right to any more. Only the
    /// first is a sign of life.
    async fn beat(&self, client: &Client, namespace: &str) -> Result<(), tokio_postgres::Error> {
        let holdings = &self.vital.holdings;
        let wanted =
            std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        client.query_typed(BEAT_ONCE, &[(&wanted, Type::INT8_ARRAY)]).await?;
        let overdue = holdings.overdue(&self.session);
        let said = [(&namespace as _, Type::TEXT), (&overdue as _, Type::TEXT_ARRAY)];
        let mut rest = client.query_typed(LET_GO, &said).await.map(drop);
        if rest.is_ok()
            && let Some(visits) = holdings.visits.take()
        {
            rest = client.query_typed(TELL, &[(&visits, Type::TEXT_ARRAY)]).await.map(drop);
        }
        match rest {
            Err(error) if error.as_db_error().is_some() => {
                tracing::warn!(target: "sprag::postgres", %error, "the session is not cleared up");
                Ok(())
            }
            rest => rest,
        }
    }
}
