//! [`Start`]: how a [`PostgresStore`] comes to be.

use std::sync::Arc;

use sprag_core::entropy::OsEntropy;
use sprag_core::wakeups::Wakeups;
use sprag_core::{Error, Operation, Result, SessionId};

use super::passing::Passing;
use super::statements::PREPARED;
use super::store::PostgresStore;
use crate::advisory::{self, Vital};
use crate::config::{LockKind, PostgresConfig};
use crate::link::{Link, Server};

/// A store whose connection is being made.
pub(super) struct Start {
    link: Link,
    namespace: String,
    session: SessionId,
    channel: String,
    wakeups: Arc<Wakeups>,
}

impl Start {
    pub(super) fn new(
        config: PostgresConfig,
        vital: Option<Vital>,
        opened: impl FnOnce(Result<Server>) + Send + 'static,
    ) -> Result<Self> {
        config.check()?;
        if (config.kind == LockKind::Advisory) != vital.is_some() {
            let message = "a PostgresStore has leases, and an AdvisoryStore advisory locks";
            return Err(Error::bad_input(Operation::Open, message));
        }
        let namespace = config.namespace.clone();
        let session = SessionId::random(&OsEntropy);
        let (channel, wakeups) = (format!("sprag_{session}"), Arc::new(Wakeups::default()));
        let prepared = vital.as_ref().map_or(PREPARED, |_| advisory::PREPARED);
        let woken = Arc::clone(&wakeups);
        let link = Link::start(config, prepared, channel.clone(), woken, vital, opened)?;
        Ok(Self { link, namespace, session, channel, wakeups })
    }

    pub(super) fn finish(self, opened: Result<Server>) -> Result<PostgresStore> {
        let server = opened?;
        let mut capability = PostgresStore::ability();
        (capability.notify, capability.eviction_hints) = (!server.pooled, !server.pooled);
        let Self { link, namespace, session, channel, wakeups } = self;
        let channel = (!server.pooled).then_some(channel);
        let passing = Passing::default();
        Ok(PostgresStore {
            capability,
            link,
            namespace,
            session,
            channel,
            wakeups,
            passing,
            server,
        })
    }
}
