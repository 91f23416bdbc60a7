-- Looks whether sessions are over that have locks which others wait for: who is next is let in then, and
-- told. Tells which are. A session has the lock on its life, shared, for as long as it lives.
CREATE FUNCTION sprag.watch_v1(ns text, sessions text[], locks text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  over text[];
  named record;
BEGIN
  SELECT array_agg(one) INTO over FROM (SELECT DISTINCT unnest(sessions) AS one) AS all_of
    WHERE sprag.is_over(one);
  IF over IS NULL THEN
    RETURN '{}';
  END IF;
  -- Whoever keeps a row keeps no other request of this connection waiting for long.
  PERFORM set_config('lock_timeout', '10', true);
  FOR named IN
    SELECT DISTINCT its.name COLLATE "C" AS name FROM unnest(sessions, locks) AS its(session, name)
      WHERE its.session = ANY (over) ORDER BY 1
  LOOP
    BEGIN
      PERFORM sprag.bury_sessions_if_sound(ns, named.name);
    EXCEPTION WHEN lock_not_available THEN
      -- It is looked at again.
      over := (SELECT array_agg(one) FROM unnest(over) AS all_of(one) WHERE one NOT IN (
        SELECT its.session FROM unnest(sessions, locks) AS its(session, name)
          WHERE its.name = named.name));
    END;
  END LOOP;
  RETURN coalesce(over, '{}');
END $$;
