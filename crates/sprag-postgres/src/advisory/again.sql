-- Bare locks that are taken over and over: what a session remembers of them, and a shorter way for those who
-- know it.

-- ---- what was seen ------------------------------------------------------------------------

-- To look at a record costs more than all else that lets a lease in. So a session remembers which ones it
-- has seen empty, for as long as nobody writes anything: each statement of an advisory lock that writes
-- a record or a grip draws a number from this sequence, after it has written and before it commits.
CREATE SEQUENCE sprag.changes;
DO $$ BEGIN PERFORM nextval('sprag.changes'); END $$;

CREATE FUNCTION sprag.tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  number bigint := nextval('sprag.changes');
BEGIN
  RETURN NULL;
END $$;

CREATE TRIGGER lock_change AFTER INSERT OR UPDATE ON sprag.lock FOR EACH STATEMENT
  WHEN (coalesce(current_setting('sprag.session', true), '') <> '') EXECUTE FUNCTION sprag.tell_change();
CREATE TRIGGER grip_change AFTER INSERT OR UPDATE ON sprag.grip FOR EACH STATEMENT
  EXECUTE FUNCTION sprag.tell_change();

-- Remembers that a record is empty, if that will be true for as long as the last number is the same.
-- 'sprag.seen' has that number, then a transaction, both with a blank behind them, then a line for each
-- lock: key, namespace, name, leases that are gone, with tabs between them. Two locks may have one key.
--
-- Who has drawn a number may not have committed, and cannot be seen then. So there are three steps, each in
-- a transaction of its own: the number is the same as the last time, so it may be worth while; a
-- transaction is begun, which is later than those of all who have drawn that number or one before it;
-- all up to that one are over, so what they have written is seen, and the record is empty. Who writes
-- after that draws another number, and whoever reads it looks again.
CREATE FUNCTION sprag.remember(ns text, lock text, lock_key bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  number text := pg_sequence_last_value('sprag.changes')::text;
  seen text := current_setting('sprag.seen');
  part text[] := string_to_array(seen, ' ');
BEGIN
  IF part[1] IS DISTINCT FROM number THEN
    seen := concat(number, ' ');
  ELSIF cardinality(part) = 2 AND pg_current_xact_id_if_assigned() IS NULL THEN
    seen := concat(number, ' ', pg_current_xact_id(), ' ');
  ELSIF cardinality(part) > 2 AND length(seen) < 8192 THEN
    SELECT concat(seen, E'\n', lock_key, E'\t', ns, E'\t', lock, E'\t', k.ended, k.gone) INTO seen
      FROM (VALUES (ns, lock)) AS its(space, name) LEFT JOIN sprag.lock AS k USING (space, name)
      WHERE pg_snapshot_xmin(pg_current_snapshot()) > part[2]::xid8
        AND (k.version IS NULL OR k.plain_lease IS NULL AND k.waiting = 0 AND k.holders = '[]'
          AND length(k.gone::text) < 4096 AND k.fence < pg_sequence_last_value('sprag.fences'))
        AND NOT EXISTS (SELECT FROM sprag.grip AS g WHERE g.key = lock_key);
    IF NOT FOUND THEN
      RETURN;
    END IF;
  ELSE
    RETURN;
  END IF;
  PERFORM set_config('sprag.seen', seen, false);
END $$;

-- ---- take and leave again -------------------------------------------------------------------

-- Who takes one bare lock over and over goes a shorter way: an expression that becomes part of
-- the client's statement, as short as can be, since to call a function and to set up what it does costs more
-- than all that it does. It does the same as `take_bare_v1`, where
--
-- * nothing else is bare in this session, and nobody wants anything of it: it is 'calm', and is the session
--   that the client was told the number in;
-- * the client was told at which number the record was seen empty, and that this lease was not gone by then;
-- * and the number is the same when the session has the key. Whoever writes after that will find the key
--   taken; who has written before has drawn a number.
--
-- Whatever is not so goes the other way. The order matters where something is done, and CASE keeps it: the
-- key is noted once it is had, and is free once it is not noted. A statement that fails in between is swept
-- up, as in bare.sql.

-- When the statement came. It waits for nobody, so it is still that time when it is done.
CREATE FUNCTION sprag.came_us() RETURNS bigint LANGUAGE sql STABLE
RETURN (date_part('epoch', statement_timestamp()) * 1000000)::bigint;

-- The other way in. `rest` is the end of the line in the note, from the tab before the TTL on.
CREATE FUNCTION sprag.take_instead(asked text, rest text, not_after_us bigint, lock_key bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  part text[] := string_to_array(rtrim(rest, E'\n'), E'\t');
BEGIN
  RETURN sprag.take_bare_v1(part[3], part[4], part[5], asked, part[2]::bigint, not_after_us / 1000, lock_key);
END $$;

-- Lets a lease in that has at least seven seconds. The answer is its line in the note.
CREATE FUNCTION sprag.take_again_v1(session text, number bigint, asked text, rest text, not_after_us bigint,
  lock_key bigint) RETURNS text LANGUAGE sql
RETURN coalesce(
  CASE WHEN current_setting('sprag.calm') = session AND current_setting('sprag.bare') = ''
      AND position(asked IN current_setting('sprag.ended')) = 0 AND sprag.came_us() <= not_after_us THEN
    CASE WHEN pg_try_advisory_lock(lock_key) THEN
      CASE WHEN pg_sequence_last_value('sprag.changes') = number
          AND nextval('sprag.fences') <= 9007199254740991 THEN
        set_config('sprag.bare', asked || E'\t' || lock_key || E'\t' || currval('sprag.fences') || E'\t'
          || sprag.came_us() || rest, false)
      ELSE nullif(pg_advisory_unlock(lock_key)::text, 'true') END
    END
  END,
  sprag.take_instead(asked, rest, not_after_us, lock_key));

-- Lets a lease out that is all there is in the note. The answer is the time.
CREATE FUNCTION sprag.leave_again_v1(ns text, lock text, asked text, lock_key bigint, line text,
  not_after_us bigint) RETURNS text LANGUAGE sql
RETURN coalesce(
  CASE WHEN current_setting('sprag.bare') = line AND sprag.came_us() <= not_after_us THEN
    CASE WHEN set_config('sprag.bare', '', false) = '' THEN
      CASE WHEN set_config('sprag.ended', right(current_setting('sprag.ended') || asked || ' ', 528),
          false) <> '' THEN
        CASE WHEN pg_advisory_unlock(lock_key) THEN sprag.came_us()::text END
      END
    END
  END,
  sprag.leave_bare_v1(ns, lock, asked, lock_key, false));
