//! [`Ear`]: what answers tell beside what was asked.

use std::sync::Arc;

use serde::Deserialize;
use sprag_core::wakeups::Wakeups;
use tokio_postgres::Row;

use crate::advisory::Holdings;

/// Hears who of this process was granted a lock by the answer to somebody else. The caller of that
/// may be gone, so it is heard here.
#[derive(Clone)]
pub(super) struct Ear {
    pub(super) wakeups: Arc<Wakeups>,
    /// Where locks end with their session.
    pub(super) holdings: Option<Arc<Holdings>>,
}

#[derive(Deserialize)]
struct Heard {
    #[serde(default)]
    told: Vec<String>,
    #[serde(default)]
    session: String,
}

impl Ear {
    /// Whether anybody was granted a lock by it.
    pub(super) fn hear(&self, row: &Row) -> bool {
        // Whoever asked complains about an answer of another form.
        let Ok(Some(text)) = row.try_get::<_, Option<&str>>(0) else { return false };
        // Most answers tell nothing, and are not worth being read twice.
        if !text.starts_with('{') || !text.contains("\"told\"") {
            return false;
        }
        // Whoever asked complains about an answer that makes no sense.
        let Ok(Heard { told, session }) = serde_json::from_str(text) else { return false };
        for one in &told {
            match &self.holdings {
                Some(holdings) => holdings.hand(one, &session),
                None => self.wakeups.hear(one),
            }
        }
        !told.is_empty()
    }
}
