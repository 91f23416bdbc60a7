-- Waits for the end of sessions that have locks which others wait for: for that of the first, a
-- moment; the others are looked at. Who is next is let in then, and told. A session has the lock on
-- its life, shared, for as long as it lives; who waits here wants it alone, and holds up nobody, as
-- nobody else ever waits for it. Tells which are over.
CREATE FUNCTION sprag.watch_v1(ns text, sessions text[], locks text[], patience_ms int)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  over text[] := '{}';
BEGIN
  PERFORM set_config('lock_timeout', patience_ms::text, true);
  BEGIN
    PERFORM pg_advisory_xact_lock(1936749156, hashtext(sessions[1]));
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
  FOR place IN 1 .. cardinality(sessions) LOOP
    IF sprag.is_over(sessions[place]) THEN
      PERFORM sprag.bury_sessions(ns, locks[place], NULL);
      over := over || sessions[place];
    END IF;
  END LOOP;
  RETURN over;
END $$;
