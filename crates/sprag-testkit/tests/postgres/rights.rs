//! What other users of a database can do to us, and what we may do there.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sprag::audit::AuditQuery;
use sprag::diagnosis::Health;
use sprag::store::Listing;
use sprag::{Locks, Mode};
use sprag_testkit::postgres_server::{Database, PgBouncer, PoolMode, PostgresServer, skipped};
use sprag_testkit::support::{LONG, eventually, within};

/// Everything that looks like something of PostgreSQL's own and fits our values better, in the schema
/// that every session looks into. Whoever calls it makes its owner a superuser, and is noted.
const TRAPS: &str = r#"
CREATE TABLE public.caught (who text, what text);
GRANT INSERT ON public.caught TO PUBLIC;
CREATE FUNCTION public.trap(what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.caught VALUES (current_user, what);
  EXECUTE 'ALTER ROLE "MALLORY" SUPERUSER';
EXCEPTION WHEN insufficient_privilege OR read_only_sql_transaction THEN
  NULL;
END $$;
DO $do$
DECLARE
  types text[] := '{smallint,integer,bigint,numeric,double precision,text,boolean,jsonb,text[],bigint[],jsonb[]}';
  back text;
  pair record;
BEGIN
  FOR pair IN
    SELECT op, a, b FROM unnest('{+,-,*,/,%,=,<>,<,<=,>,>=,||,->,->>,?,@>,<<,|}'::text[]) AS op,
      unnest(types) AS a, unnest(types) AS b
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_operator AS o WHERE o.oprname = op
        AND o.oprleft = a::regtype AND o.oprright = b::regtype)
  LOOP
    back := CASE WHEN pair.op ~ '[=<>?@]' AND pair.op !~ '^(->|<<)' THEN 'boolean' ELSE pair.a END;
    EXECUTE format('CREATE FUNCTION public.%I(a %s, b %s) RETURNS %s LANGUAGE plpgsql AS '
      '$$BEGIN PERFORM public.trap(%L); RETURN NULL; END$$',
      'op ' || pair.op, pair.a, pair.b, back, format('%s %s %s', pair.a, pair.op, pair.b));
    EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)',
      pair.op, 'op ' || pair.op, pair.a, pair.b);
  END LOOP;
  FOR pair IN VALUES ('unnest(text[])', 'SETOF text'), ('unnest(bigint[])', 'SETOF bigint'),
    ('unnest(jsonb[])', 'SETOF jsonb'), ('count(text)', 'bigint'), ('cardinality(text[])', 'int'),
    ('cardinality(jsonb[])', 'int'), ('concat(text, text)', 'text'), ('format(text, text)', 'text'),
    ('jsonb_build_object(text, bigint, text, jsonb)', 'jsonb'), ('jsonb_build_object(text, text)', 'jsonb'),
    ('jsonb_build_array(jsonb)', 'jsonb'), ('to_jsonb(text)', 'jsonb'),
    ('jsonb_path_query_first(jsonb, text, jsonb)', 'jsonb'), ('date_part(text, timestamptz)', 'bigint')
  LOOP
    EXECUTE format('CREATE FUNCTION public.%s RETURNS %s LANGUAGE plpgsql AS '
      '$$BEGIN PERFORM public.trap(%L); RETURN%s; END$$', pair.column1, pair.column2, pair.column1,
      CASE WHEN pair.column2 ~ 'SETOF' THEN '' ELSE ' NULL' END);
  END LOOP;
END $do$;
"#;

/// Another user of this database who sets traps for those who come; its name.
fn set_traps(database: &Database) -> String {
    let mallory = format!("mallory_{}", database.name());
    database.sql(&format!(
        "CREATE ROLE {mallory}; GRANT CREATE ON SCHEMA public TO {mallory}; SET ROLE {mallory}; {}",
        TRAPS.replace("MALLORY", &mallory)
    ));
    mallory
}

/// Everything that is done with locks.
async fn use_locks(url: &str) {
    let (locks, other) = (Locks::open(url).unwrap(), Locks::open(url).unwrap());
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, of: 2 }] {
        let mut guard = locks.lock("job").ttl(LONG).mode(mode).acquire().await.unwrap();
        let waiting = tokio::spawn(other.lock("job").ttl(LONG).acquire());
        let waits = async || locks.inspect("job").await.is_ok_and(|view| view.waiters.len() == 1);
        eventually("it waits", waits).await;
        guard.extend(LONG).await.unwrap();
        assert_eq!(locks.list(&Listing::default()).await.unwrap().locks.len(), 1);
        guard.release().await.unwrap();
        within("it is granted", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    let guard = locks.lock("job").upgradable().acquire().await.unwrap();
    other.lock("job").shared().acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    let broken = locks.lock("job").acquire().await.unwrap();
    other.evict("job", broken.fence(), "a test").await.unwrap();
    let all = locks.store().audit(&AuditQuery::default()).await.unwrap();
    assert!(!all.is_empty(), "there is no trail");
    let next = AuditQuery { after: all[0].sequence, ..AuditQuery::default() };
    locks.store().audit(&next).await.unwrap();
    locks.store().diagnose().await.unwrap();
}

/// Names that another user defines in a schema that everybody looks into are never ours.
async fn nobody_is_caught(database: &Database, mallory: &str, url: &str) {
    use_locks(url).await;
    assert_eq!(database.sql("SELECT DISTINCT what FROM public.caught"), "", "{url}");
    let is_super = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{mallory}'");
    assert_eq!(database.sql(&is_super), "f", "{url}");
}

#[tokio::test]
async fn traps_in_a_schema_that_all_look_into_catch_nobody() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let mallory = set_traps(&database);
    // The first one makes the schema.
    nobody_is_caught(&database, &mallory, &database.url()).await;
    let advisory = format!("{}?mode=advisory&namespace=advisory", database.url());
    nobody_is_caught(&database, &mallory, &advisory).await;
    let pool = PgBouncer::start(PoolMode::Transaction, &database.folder(), database.port()).await;
    nobody_is_caught(&database, &mallory, &pool.url(database.name())).await;
    let made_by_hand = Database::fresh();
    let mallory = set_traps(&made_by_hand);
    made_by_hand.sql(sprag::stores().iter().find_map(|kind| kind.sql).expect("there is SQL"));
    nobody_is_caught(&made_by_hand, &mallory, &made_by_hand.url()).await;
}

/// A user of this database who may do nothing yet; its name, and the URL with it.
fn new_user(database: &Database) -> (String, String) {
    let user = format!("user_{}", database.name());
    database.sql(&format!("CREATE ROLE {user} LOGIN"));
    let url = database.url().replace("postgres://postgres@", &format!("postgres://{user}@"));
    (user, url)
}

/// What the documentation says to type is enough for everything, and for nothing else.
#[tokio::test]
async fn who_is_let_in_may_use_locks_and_nothing_else() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    database.sql(sprag::stores().iter().find_map(|kind| kind.sql).expect("there is SQL"));
    let (user, url) = new_user(&database);
    let may = |text: &str| database.try_sql(&format!("SET ROLE {user}; {text}")).is_ok();
    // One who may look into the schema may call nothing in it.
    database.sql(&format!("GRANT USAGE ON SCHEMA sprag TO {user}"));
    let called = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'sprag'::regnamespace \
         AND proname <> 'check_fence' AND has_function_privilege(current_user, oid, 'EXECUTE')";
    assert_eq!(database.sql(&format!("SET ROLE {user}; {called}")), "0");
    assert!(!may("SELECT sprag.raise_fences()"));
    assert!(!may("SELECT nextval('sprag.fences')"));

    let docs = include_str!("../../../../docs/stores/postgres.md");
    assert!(docs.contains("SELECT sprag.let_in('app_user');"), "the page says something else");
    assert!(!may(&format!("SELECT sprag.let_in('{user}')")), "let in by itself");
    database.sql(&format!("SELECT sprag.let_in('{user}')"));
    use_locks(&url).await;
    use_locks(&format!("{url}?mode=advisory&namespace=advisory")).await;

    for text in [
        "SELECT setval('sprag.fences', 9007199254740991)",
        "DELETE FROM sprag.era",
        "UPDATE sprag.meta SET version = 2",
        "CREATE TABLE sprag.other (id int)",
        "DROP FUNCTION sprag.check_fence()",
        "SELECT sprag.let_in('postgres')",
    ] {
        assert!(!may(text), "{text}");
    }
}

/// However often a user who is let in asks for it, fences stay where the clock is, so that no lock of
/// the database runs out of them.
#[tokio::test]
async fn who_is_let_in_cannot_use_up_the_fences() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let url = format!("{}?mode=advisory", database.url());
    let locks = Locks::open(&url).unwrap();
    locks.lock("job").acquire().await.unwrap().release().await.unwrap();
    let (user, _) = new_user(&database);
    database.sql(&format!("SELECT sprag.let_in('{user}')"));
    let takes_a_number = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'sprag'::regnamespace \
         AND prosecdef AND pronargs > 0";
    assert_eq!(database.sql(takes_a_number), "0", "with the rights of the owner, and an argument");
    let calls = "SELECT count(sprag.raise_fences()) FROM generate_series(1, 1000)";
    database.sql(&format!("SET ROLE {user}; {calls}"));
    let ahead = "SELECT (last_value - extract(epoch FROM clock_timestamp()) * 1000000) / 1000000 < 2 \
         FROM sprag.fences";
    assert_eq!(database.sql(ahead), "t");
    locks.lock("job").acquire().await.unwrap().release().await.unwrap();
}

/// Every function of ours says where it looks for names, or had them looked up when it was made.
#[tokio::test]
async fn every_function_says_where_it_looks_for_names() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    drop(Locks::open(&database.url()).unwrap());
    let open = "SELECT p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'sprag'::regnamespace \
         AND p.prosqlbody IS NULL AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)";
    assert_eq!(database.sql(open), "");
}

#[tokio::test]
async fn the_doctor_tells_of_a_superuser() {
    if skipped() {
        return;
    }
    let database = Database::fresh();
    let about_rights = async |url: &str| {
        let findings = Locks::open(url).unwrap().store().diagnose().await.unwrap();
        findings.into_iter().find(|it| it.text.starts_with("rights:")).expect("nothing is said")
    };
    let finding = about_rights(&database.url()).await;
    assert!(finding.health == Health::Warn && finding.text.contains("superuser"), "{finding:?}");
    let (user, url) = new_user(&database);
    database.sql(&format!("SELECT sprag.let_in('{user}')"));
    assert_eq!(about_rights(&url).await.health, Health::Good);
}

/// With synchronous standbys a grant is answered when they have it, whatever was set for this user:
/// where there is none of them, nobody gets a lock.
#[tokio::test]
async fn a_grant_waits_for_the_standbys_whatever_is_set() {
    if skipped() {
        return;
    }
    let server = PostgresServer::start(&[]).await;
    let sql = |text: &str| server.sql("postgres", text);
    drop(Locks::open(&server.url("postgres")).unwrap());
    for (number, level) in ["off", "local", "remote_write"].into_iter().enumerate() {
        sql("ALTER SYSTEM RESET synchronous_standby_names");
        sql("SELECT pg_reload_conf()");
        eventually("no standby", async || sql("SHOW synchronous_standby_names").is_empty()).await;
        sql(&format!("ALTER ROLE postgres SET synchronous_commit = {level}"));
        let locks = Locks::open(&server.url("postgres")).unwrap();
        let (taken, shared) = (format!("taken-{number}"), format!("shared-{number}"));
        sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        sql("SELECT pg_reload_conf()");
        let set = async || sql("SHOW synchronous_standby_names") == "nobody";
        eventually("the standby is to be waited for", set).await;
        // The server hears of it a moment later.
        let refused = async || locks.lock(taken.as_str()).try_acquire().await.is_err();
        eventually("nothing is granted without a standby", refused).await;
        let error = locks.lock(shared).shared().try_acquire().await.expect_err("without a standby");
        assert!(error.is_unavailable() || error.is_busy(), "{level}: {error}");
    }
}
