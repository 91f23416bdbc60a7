//! [`Call`]: what is asked of the server.

use tokio_postgres::types::{ToSql, Type};

/// One statement and what goes into it.
pub(crate) struct Call {
    pub(crate) statement: &'static str,
    pub(crate) parameters: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
    /// Whether the server waits for its disk.
    pub(super) durable: bool,
    /// The session lock that it may take.
    pub(super) key: Option<i64>,
}

impl Call {
    pub(crate) const fn new(statement: &'static str) -> Self {
        Self { statement, parameters: Vec::new(), durable: false, key: None }
    }

    /// The key of the lock that it is about.
    pub(crate) fn key(mut self, key: i64) -> Self {
        self.key = Some(key);
        self.with(key, Type::INT8)
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
