//! The schema `sprag`: made on first use, by one of those who come first.
//!
//! # Versions
//!
//! The schema has a number, and the functions that clients call carry it in their names. Any change
//! of the tables or functions is a new number, with the statements that lead from the one before to
//! it. A client upgrades an older schema, refuses a newer one, and one that was connected meanwhile
//! finds its functions gone: nobody works with what it does not know.

use std::time::Duration;

use sprag_core::{Error, ErrorKind, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::config::PostgresConfig;
use crate::error::{Misfit, error, from_postgres, misfit, no_answer};
use crate::link::answered::{ask_one, try_one};

macro_rules! objects {
    () => {
        concat!(
            include_str!("tables.sql"),
            "\n",
            include_str!("fence.sql"),
            "\n",
            include_str!("../lease/sql/words.sql"),
            "\n",
            include_str!("../lease/sql/sweep.sql"),
            "\n",
            include_str!("../lease/sql/step.sql"),
            "\n",
            include_str!("../lease/sql/commands.sql"),
            "\n",
            include_str!("../lease/sql/plain.sql"),
            "\n",
            include_str!("../lease/sql/queue.sql"),
            "\n",
            include_str!("../lease/sql/repair.sql"),
            "\n",
            include_str!("../lease/sql/apply.sql"),
            "\n",
            include_str!("../advisory/grip.sql"),
            "\n",
            include_str!("../advisory/bare.sql"),
            "\n",
            include_str!("../advisory/again.sql"),
            "\n",
            include_str!("../advisory/apply.sql"),
            "\n",
            include_str!("../advisory/watch.sql"),
            "\n",
            include_str!("../lease/sql/look.sql"),
            "\n",
            include_str!("rights.sql"),
        )
    };
}

/// The schema that this version of sprag works with.
const VERSION: i32 = 1;

/// Everything that this store keeps in a database, as SQL: for people who may create it where sprag
/// itself may not.
pub const SQL: &str = concat!(
    "-- The schema of sprag, version 1. Run it once, as a user who may create schemas; then let the\n",
    "-- user of sprag in:\n",
    "--   SELECT sprag.let_in('the user');\n\n",
    "BEGIN;\n",
    "SET LOCAL search_path = pg_catalog, pg_temp;\n",
    "CREATE SCHEMA IF NOT EXISTS sprag;\n\n",
    objects!(),
    "\nCOMMIT;\n"
);

/// The same without the schema itself, which may be there already.
const OBJECTS: &str = objects!();

/// Who makes the schema holds this advisory lock meanwhile: `sprag` and the word for schema.
const MAKING: i64 = 0x7370_7261_6773_6368;

/// Longer than all that is done to make the schema may take.
const MAKING_LIMIT: Duration = Duration::from_secs(180);

/// Whether there is a schema.
pub(crate) async fn exists(client: &Client, config: &PostgresConfig) -> Result<bool> {
    let found = "SELECT pg_catalog.to_regclass('sprag.meta') IS NOT NULL";
    let found = ask_one(client, config, found, &[]).await?;
    found.try_get(0).map_err(|e| misfit(config, &e.into()))
}

/// Makes the schema, unless somebody else does.
pub(crate) async fn make(client: &mut Client, config: &PostgresConfig) -> Result<()> {
    let failed = |e| from_postgres(config, e);
    let made = async {
        let work = client.transaction().await.map_err(failed)?;
        make_in(&work, config).await?;
        work.commit().await.map_err(failed)
    };
    let late = || no_answer(config, "did not make the schema sprag in three minutes");
    tokio::time::timeout(MAKING_LIMIT, made).await.unwrap_or_else(|_| Err(late()))
}

/// Makes sure that the schema is ours and that the namespace is of the kind asked for.
pub(crate) async fn check(client: &Client, config: &PostgresConfig) -> Result<()> {
    let version = version(client, config).await?;
    if version != VERSION {
        return Err(error(
            ErrorKind::Corrupt,
            format!(
                "the schema sprag in {config} has version {version} and this sprag works with \
                 version {VERSION}: upgrade sprag here"
            ),
        ));
    }
    claim(client, config).await
}

/// The number of the schema, if it is one of ours.
async fn version(client: &Client, config: &PostgresConfig) -> Result<i32> {
    // As texts, as it may be anything.
    let found = "SELECT pg_catalog.count(*), pg_catalog.max(version)::text FROM sprag.meta";
    let found = try_one(client, found, &[]).await;
    let found = found.map_err(|error| match error.downcast::<tokio_postgres::Error>() {
        Ok(error) => foreign(config, *error),
        Err(why) => misfit(config, &why),
    })?;
    let read =
        || -> Result<(i64, Option<String>), Misfit> { Ok((found.try_get(0)?, found.try_get(1)?)) };
    let (rows, version) = read().map_err(|e| misfit(config, &e))?;
    match version.unwrap_or_default().parse() {
        Ok(version) if rows == 1 => Ok(version),
        _ => Err(not_ours(config, &format!("its table meta has {rows} rows, and no number"))),
    }
}

async fn make_in(work: &Transaction<'_>, config: &PostgresConfig) -> Result<()> {
    let failed = |e| from_postgres(config, e);
    // Whatever the limits of this user are, who comes first may need longer, and others wait.
    let patient = format!(
        "SET LOCAL search_path = pg_catalog, pg_temp; \
         SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '60s'; \
         SELECT pg_advisory_xact_lock({MAKING})"
    );
    work.batch_execute(&patient).await.map_err(failed)?;
    let found =
        "SELECT to_regclass('sprag.meta') IS NOT NULL, to_regnamespace('sprag') IS NOT NULL";
    let found = work.query_typed_one(found, &[]).await.map_err(failed)?;
    let read = |place| found.try_get::<_, bool>(place).map_err(|e| misfit(config, &e.into()));
    if read(0)? {
        return Ok(());
    }
    if !read(1)? {
        let made = work.batch_execute("CREATE SCHEMA sprag").await;
        made.map_err(|e| no_right(config, e))?;
    }
    work.batch_execute(OBJECTS).await.map_err(|e| match e.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => no_right(config, e),
        _ => foreign(config, e),
    })
}

/// Takes the namespace unless it is taken, and tells its kind. Nothing is found if somebody takes it
/// at the same moment.
const CLAIM: &str = "SELECT sprag.claim_v1($1, $2)";

/// The namespace is of one kind from its first use on.
async fn claim(client: &Client, config: &PostgresConfig) -> Result<()> {
    let mut found = None;
    while found.is_none() {
        let kind = config.kind.as_str();
        let asked = [(&config.namespace as _, Type::TEXT), (&kind as _, Type::TEXT)];
        let answer = ask_one(client, config, CLAIM, &asked).await?;
        found = answer.try_get::<_, Option<String>>(0).map_err(|e| misfit(config, &e.into()))?;
    }
    match found {
        Some(kind) if kind != config.kind.as_str() => Err(error(
            ErrorKind::Refused,
            format!(
                "the namespace {:?} in {config} has {kind} locks, which do not exclude {} locks: \
                 open it with mode={kind}, or use another namespace",
                config.namespace,
                config.kind.as_str()
            ),
        )),
        _ => Ok(()),
    }
}

fn no_right(config: &PostgresConfig, source: tokio_postgres::Error) -> Error {
    match source.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => error(
            ErrorKind::Refused,
            format!(
                "this user may not create the schema sprag in {config}: let somebody who may type \
                 sprag stores --sql postgres | psql {}",
                config.database
            ),
        )
        .caused_by(source),
        _ => from_postgres(config, source),
    }
}

fn foreign(config: &PostgresConfig, source: tokio_postgres::Error) -> Error {
    match source.code() {
        Some(
            &SqlState::DUPLICATE_TABLE
            | &SqlState::DUPLICATE_FUNCTION
            | &SqlState::DUPLICATE_OBJECT
            | &SqlState::UNDEFINED_COLUMN
            | &SqlState::WRONG_OBJECT_TYPE,
        ) => not_ours(config, &source.to_string()).caused_by(source),
        _ => from_postgres(config, source),
    }
}

fn not_ours(config: &PostgresConfig, why: &str) -> Error {
    error(
        ErrorKind::Refused,
        format!(
            "the schema sprag in {config} belongs to another program ({why}): rename it with ALTER \
             SCHEMA sprag RENAME TO another_name, or use another database"
        ),
    )
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::{SQL, VERSION};

    /// Of version 1.
    const FROZEN: &str = "292368cea7665857b847d1319cb6a23b61657eedda529f157762541edb8fa5c6";

    #[test]
    fn the_schema_is_frozen() {
        let digest: String = Sha256::digest(SQL).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (VERSION, digest.as_str()),
            (1, FROZEN),
            "the schema has changed: once it was released it needs a new number, and statements that \
             lead from the old one to it"
        );
        assert!(SQL.contains("INSERT INTO sprag.meta VALUES (1);"));
    }
}
