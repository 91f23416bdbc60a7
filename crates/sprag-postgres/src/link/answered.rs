//! Whose answer it is, behind a pool.
//!
//! A pool lends one connection to the server to many clients. If one of them dies that had sent several
//! requests at once, some pools (PgBouncer before 1.21) give that connection to the next client while
//! answers are still to come on it, and the next client takes them for its own: a grant of somebody else's
//! lock, or a release for a grant. So behind a pool
//!
//! * one request is under way at a time, so that we leave no such connection behind;
//! * each has a name that nobody else knows, and its answer has that in every row, and has at least one row;
//! * an answer with another name, or an error, ends the connection. What was asked may be done or not, and
//!   the client asks again by its lease.

use sprag_core::entropy::OsEntropy;
use sprag_core::{LeaseId, Result};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::config::PostgresConfig;
use crate::error::{Misfit, from_postgres, misfit};

/// A name for a request.
pub(super) fn new_name() -> String {
    LeaseId::random(&OsEntropy).to_string()
}

/// A statement whose answer has its name, which is the parameter after the others.
pub(super) fn named(statement: &str, parameters: usize) -> String {
    let name = parameters + 1;
    format!(
        "SELECT answer.*, ${name}::text AS its_request FROM (SELECT) AS one LEFT JOIN \
         (SELECT rows.*, true AS is_there FROM ({statement}) AS rows) AS answer ON true"
    )
}

/// Asks for one row. Also before it is known whether there is a pool: as long as a connection is new nothing
/// is pipelined, but what comes first may be to somebody else.
pub(crate) async fn ask_one(
    client: &Client,
    config: &PostgresConfig,
    statement: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Row> {
    let asked = try_one(client, statement, values).await;
    asked.map_err(|error| match error.downcast::<tokio_postgres::Error>() {
        Ok(error) => from_postgres(config, *error),
        Err(why) => misfit(config, &why),
    })
}

/// The same, with the error of the server as it is.
pub(crate) async fn try_one(
    client: &Client,
    statement: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Row, Misfit> {
    let name = new_name();
    let mut values = values.to_vec();
    let statement = named(statement, values.len());
    values.push((&name, Type::TEXT));
    let rows = ours(client.query_typed(&statement, &values).await?, &name)?;
    rows.into_iter().next().ok_or_else(|| "there is no row".into())
}

/// The rows of the answer, if it has this name.
pub(super) fn ours(mut rows: Vec<Row>, name: &str) -> Result<Vec<Row>, Misfit> {
    if rows.is_empty() {
        return Err("it has no rows".into());
    }
    let mut there = Vec::with_capacity(rows.len());
    for row in &rows {
        let last = row.len().checked_sub(1).ok_or("it has no columns")?;
        if row.try_get::<_, &str>(last)? != name {
            return Err("it is to another request".into());
        }
        let is_there: Option<bool> =
            row.try_get(last.checked_sub(1).ok_or("it has one column")?)?;
        there.push(is_there.unwrap_or(false));
    }
    let mut there = there.into_iter();
    rows.retain(|_| there.next().unwrap_or(false));
    Ok(rows)
}
