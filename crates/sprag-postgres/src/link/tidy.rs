//! [`tidy`]: each process sweeps away now and then what nobody needs any more, beside what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use sprag_core::entropy::{Entropy, OsEntropy};
use tokio_postgres::Row;

use super::{Call, Desk};

/// Sweeps away what nobody needs any more: some rows at a time.
const TIDY_UP: &str = "SELECT sprag.tidy_v1()";
/// About when each process begins, how often it does so, and how often where there is much to do.
const FIRST: Duration = Duration::from_secs(2);
const TIDY: Duration = Duration::from_secs(20);
const TIDY_MUCH: Duration = Duration::from_secs(1);

/// Sweeps for ever.
pub(super) async fn tidy(desk: Arc<Desk>) {
    let mut pause = FIRST;
    loop {
        // Not all of a crowd at the same moment.
        tokio::time::sleep(pause.mul_f64(0.5 + OsEntropy.next_fraction())).await;
        let Some(line) = desk.line() else { continue };
        let call = Call::new(TIDY_UP);
        let (_turn, _errand) = (line.turn().await, line.lane.errand());
        let patience = desk.connector.config.timeout;
        let answer = tokio::time::timeout(patience, line.ask(&desk.connector.config, &call)).await;
        let has_more =
            |rows: &[Row]| rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
        pause = TIDY;
        match answer {
            Ok(Ok(rows)) if has_more(&rows) => pause = TIDY_MUCH,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(target: "sprag::postgres", %error, "not swept"),
            Err(_) => line.doubt(None),
        }
    }
}
