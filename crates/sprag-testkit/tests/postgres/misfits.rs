//! Answers of another form than any that was asked for.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag::Mode;
use sprag::store::{Attempt, Listing, Request};
use sprag_testkit::postgres_server::{Database, skipped};
use sprag_testkit::support::{eventually, name, request};

/// Every function that is called, and what each of them answers now: another type, or nothing.
const CHANGES: &str = r#"
DO $do$
DECLARE
  its record;
BEGIN
  FOR its IN SELECT p.oid::regprocedure AS called, p.proname,
      pg_get_function_identity_arguments(p.oid) AS arguments FROM pg_proc AS p
    WHERE p.pronamespace = 'sprag'::regnamespace AND p.proname LIKE '%\_v1'
  LOOP
    EXECUTE format('ALTER FUNCTION %s RENAME TO %I', its.called, its.proname || '_kept');
    EXECUTE format('CREATE FUNCTION sprag.%I(%s) RETURNS TYPE LANGUAGE sql AS $$ SELECT VALUE $$',
      its.proname, (SELECT string_agg(format_type(t, NULL), ', ') FROM pg_proc AS p,
        unnest(p.proargtypes) AS t WHERE p.oid = its.called));
  END LOOP;
END $do$
"#;

const RESTORE: &str = r#"
DO $do$
DECLARE
  its record;
BEGIN
  FOR its IN SELECT p.oid::regprocedure AS called FROM pg_proc AS p
    WHERE p.pronamespace = 'sprag'::regnamespace AND p.proname LIKE '%\_v1' LOOP
    EXECUTE format('DROP FUNCTION %s', its.called);
  END LOOP;
  FOR its IN SELECT p.oid::regprocedure AS called, p.proname FROM pg_proc AS p
    WHERE p.pronamespace = 'sprag'::regnamespace AND p.proname LIKE '%\_v1\_kept' LOOP
    EXECUTE format('ALTER FUNCTION %s RENAME TO %I', its.called, replace(its.proname, '_kept', ''));
  END LOOP;
END $do$
"#;

/// Nothing that a server answers makes anybody panic, or closes the store: when it makes sense again, so
/// do we.
async fn misfits_close_nothing(database: &Database, url: &str) {
    let store = sprag::open(url).unwrap();
    let works = async || {
        let asked = request("job");
        let taken = store.try_acquire(&asked).await;
        matches!(taken, Ok(Attempt::Granted(_)))
            && store.release(&asked.name, asked.lease).await.is_ok()
    };
    assert!(works().await);
    for (of, value) in [("bigint", "7"), ("text", "NULL"), ("text[]", "ARRAY[1::text]")] {
        database.sql(&CHANGES.replace("TYPE", of).replace("VALUE", value));
        let taken = store.try_acquire(&request("job")).await;
        taken.expect_err("taken");
        let shared = Request { mode: Mode::Shared, ..request("job") };
        store.try_acquire(&shared).await.expect_err("shared");
        store.inspect(&name("job")).await.expect_err("seen");
        store.list(&Listing::default()).await.expect_err("listed");
        store.diagnose().await.expect_err("diagnosed");
        sprag::open(url).expect_err("opened");
        database.sql(RESTORE);
        eventually("it works again", works).await;
    }
}

#[tokio::test]
async fn answers_that_do_not_fit_close_no_store() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    misfits_close_nothing(&database, &database.url()).await;
    let database = Database::fresh();
    misfits_close_nothing(&database, &format!("{}?mode=advisory", database.url())).await;
}
