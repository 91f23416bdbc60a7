//! [`Call`]: what is asked of the server.

use std::sync::Arc;

use sprag_core::clock::{BootClock, Clock, Moment};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::{ToSql, Type};

/// One statement and what goes into it.
pub(crate) struct Call {
    pub(crate) statement: &'static str,
    pub(crate) parameters: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
    /// Whether the server waits for its disk.
    pub(super) durable: bool,
    /// The session lock that it may take.
    pub(super) key: Option<i64>,
    /// Whether it goes past all that wait to be sent.
    pub(super) renews: bool,
    pub(super) place: Option<Place>,
}

/// The place of a request among those that are under way, until it is answered. The others wait here, where
/// their time does not run and a renewal passes them.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    /// When it was asked for.
    pub(super) asked: Moment,
}

impl Place {
    /// Waits for one.
    pub(super) async fn of(places: &Arc<Semaphore>) -> Option<Self> {
        let asked = BootClock.now();
        let permit = Arc::clone(places).acquire_owned().await.ok()?;
        Some(Self { _permit: permit, asked })
    }
}

impl Call {
    pub(crate) const fn new(statement: &'static str) -> Self {
        Self {
            statement,
            parameters: Vec::new(),
            durable: false,
            key: None,
            renews: false,
            place: None,
        }
    }

    /// The key of the lock that it is about.
    pub(crate) fn key(mut self, key: i64) -> Self {
        self.key = Some(key);
        self.with(key, Type::INT8)
    }

    /// It has its place already.
    pub(crate) fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    /// It is a renewal, and waits for nobody of this process.
    pub(crate) const fn renewing(mut self) -> Self {
        self.renews = true;
        self
    }

    /// What it does is on the disk before it is answered.
    pub(crate) const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// What goes into it, with the types.
    pub(super) fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.parameters.iter().map(|(value, of)| (&**value as _, of.clone())).collect()
    }

    pub(crate) fn text(self, text: impl Into<String>) -> Self {
        self.with(text.into(), Type::TEXT)
    }

    pub(crate) fn with(mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> Self {
        self.parameters.push((Box::new(value), of));
        self
    }
}
