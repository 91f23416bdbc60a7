-- The small words of the lock machine. What reads a table or unfolds a list is in PL/pgSQL, which
-- keeps its plan; the rest becomes part of the statement that uses it.

CREATE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

CREATE FUNCTION sprag.permits_of(mode jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN coalesce((mode -> 'permits' ->> 'count')::bigint, 0);

CREATE FUNCTION sprag.expires_of(lease jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN (lease ->> 'renewed_ms')::bigint + (lease ->> 'ttl_ms')::bigint;

-- How long a lease lasts that is renewed to `ttl`: its end only moves forward, as the renewal may have
-- been overtaken by a longer one. See `Hold::left_ms`.
CREATE FUNCTION sprag.longer(ttl bigint, renewed_ms bigint, was bigint, now_ms bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN greatest(ttl, least(renewed_ms + was - now_ms, was));

CREATE FUNCTION sprag.renewed(hold jsonb, ttl bigint, now_ms bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN hold || jsonb_build_object('renewed_ms', now_ms, 'ttl_ms', sprag.longer(ttl,
  (hold ->> 'renewed_ms')::bigint, (hold ->> 'ttl_ms')::bigint, now_ms));

CREATE FUNCTION sprag.arrival_of(wait jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN (wait ->> 'arrived_ms')::bigint - (wait ->> 'priority')::bigint * 10000;

-- Whether two leases in these modes may be held at once, permits left aside.
CREATE FUNCTION sprag.coexist(held jsonb, asked jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN CASE held
  WHEN '"exclusive"' THEN false
  WHEN '"shared"' THEN asked IN ('"shared"', '"upgradable"')
  WHEN '"upgradable"' THEN asked = '"shared"'
  ELSE jsonb_typeof(asked) = 'object'
END;

CREATE FUNCTION sprag.gone_reason(gone jsonb, lease text) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_path_query_first(gone, '$[*] ? (@.lease == $lease).loss',
  jsonb_build_object('lease', lease));

CREATE FUNCTION sprag.hold_of(holders jsonb, lease text) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_path_query_first(holders, '$[*] ? (@.lease == $lease)',
  jsonb_build_object('lease', lease));

-- Holders with this one in the place of its old self.
CREATE FUNCTION sprag.with_hold(holders jsonb, hold jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (SELECT jsonb_agg(CASE one ->> 'lease' WHEN hold ->> 'lease' THEN hold ELSE one END
    ORDER BY place) FROM jsonb_array_elements(holders) WITH ORDINALITY AS all_of(one, place));
END $$;

-- Remembers why a lease is gone; of eight, who released is forgotten first.
CREATE FUNCTION sprag.remember(gone jsonb, lease text, loss jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE forgotten int;
BEGIN
  IF jsonb_array_length(gone) >= 8 THEN
    SELECT coalesce(min(place)::int - 1, 0) INTO forgotten
      FROM jsonb_array_elements(gone) WITH ORDINALITY AS all_of(one, place)
      WHERE one -> 'loss' = '"released"';
    gone := gone - forgotten;
  END IF;
  RETURN gone || jsonb_build_object('lease', lease, 'loss', loss);
END $$;

CREATE FUNCTION sprag.granted(hold jsonb) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('granted', jsonb_build_object(
  'fence', hold -> 'fence', 'mode', hold -> 'mode',
  'took_over', coalesce(hold -> 'took_over', 'false')));

CREATE FUNCTION sprag.answer(us bigint, outcome jsonb) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('now_us', us, 'outcome', outcome);

CREATE FUNCTION sprag.event(kind jsonb, hold jsonb, after_ms bigint) RETURNS jsonb
LANGUAGE sql STABLE
RETURN jsonb_build_object('kind', kind, 'lease', hold -> 'lease', 'session', hold -> 'session',
  'fence', coalesce(hold -> 'fence', '0'), 'mode', hold -> 'mode', 'holder', hold -> 'holder',
  'after_ms', greatest(after_ms, 0));

-- Writes what happened into the trail, and now and then forgets what is old.
CREATE FUNCTION sprag.tell(ns text, lock text, ms bigint, event jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
  INSERT INTO sprag.trail (space, name, at_ms, event) VALUES (ns, lock, ms, tell.event)
    RETURNING sequence INTO last;
  IF last % 500 = 0 THEN
    PERFORM sprag.forget_trail(last);
  END IF;
END $$;

-- Mostly the last few of those that are too old, as it takes long to find that the others are gone;
-- now and then all. Whoever else does so meanwhile is not waited for.
CREATE FUNCTION sprag.forget_trail(last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM sprag.trail WHERE sequence IN (
    SELECT t.sequence FROM sprag.trail AS t WHERE t.sequence <= last - 10000
      AND t.sequence > CASE WHEN last % 100000 = 0 THEN 0 ELSE last - 11000 END
      ORDER BY t.sequence LIMIT 10000 FOR UPDATE SKIP LOCKED);
  -- Chance brings every row here some day.
  PERFORM sprag.clear(30 * 86400 * 1000000::bigint, 0.1);
END $$;

-- Clears away some of the locks that nobody has used for so long. Their fences are kept, as a floor
-- for those of all locks that come.
CREATE FUNCTION sprag.clear(age_us bigint, percent real) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  cleared bigint;
BEGIN
  WITH old AS (
    SELECT k.space, k.name FROM sprag.lock AS k TABLESAMPLE SYSTEM (percent)
      WHERE k.plain_lease IS NULL AND k.holders = '[]' AND k.waiting = 0
        AND greatest(k.fence, k.plain_us) < sprag.now_us() - age_us
      LIMIT 1000 FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM sprag.lock AS k USING old WHERE k.space = old.space AND k.name = old.name
      RETURNING k.space, k.fence
  ), raised AS (
    UPDATE sprag.namespace AS n SET floor = greatest(n.floor, g.fence)
      FROM (SELECT space, max(fence) AS fence FROM gone GROUP BY space) AS g
      WHERE n.space = g.space
  ) SELECT count(*) INTO cleared FROM gone;
  RETURN cleared;
END $$;

-- What was granted or renewed must not be forgotten in a crash. What was given back may; and all of
-- an advisory lock, see begin_session_v1.
CREATE FUNCTION sprag.durable(must boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(current_setting('sprag.session', true), '') <> '' THEN
    RETURN;
  ELSIF NOT must THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- The last fence that a crash may have forgotten.
CREATE FUNCTION sprag.forgotten() RETURNS bigint LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('sprag.forgotten', true), '')::bigint, 0);
