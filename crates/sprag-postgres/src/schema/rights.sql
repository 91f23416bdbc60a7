-- Who may do what, and whose names count. Last, as it is about all that is above.

-- Names that another user of the database defines, in a schema that every session looks into, must not
-- be taken for PostgreSQL's own: an operator that fits the types better would be called with the rights
-- of who uses a lock. Functions whose body is SQL had their names looked up when they were made; the
-- others do so when they run.
DO $$
DECLARE
  its regprocedure;
BEGIN
  FOR its IN SELECT p.oid FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
    WHERE p.pronamespace = 'sprag'::regnamespace AND l.lanname = 'plpgsql'
  LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', its);
  END LOOP;
END $$;

-- Nobody but the owner may call anything, unless it is let in; except for what tables of others need.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sprag FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sprag.check_fence() TO PUBLIC;

-- Lets a user use locks: all that this takes, and no more. Only the owner of the schema can.
CREATE FUNCTION sprag.let_in(who text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA sprag TO %I', who);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA sprag TO %I', who);
  EXECUTE format('GRANT INSERT, UPDATE ON sprag.namespace TO %I', who);
  EXECUTE format('GRANT INSERT, UPDATE, DELETE ON sprag.lock, sprag.waiter, sprag.trail, '
    'sprag.grip, sprag.session, sprag.swept TO %I', who);
  EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE sprag.fences, sprag.changes TO %I', who);
  EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sprag TO %I', who);
  EXECUTE format('REVOKE EXECUTE ON FUNCTION sprag.let_in(text) FROM %I', who);
END $$;
REVOKE ALL ON FUNCTION sprag.let_in(text) FROM PUBLIC;
