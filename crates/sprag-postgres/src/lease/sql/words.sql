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

-- Writes what happened into the trail, and forgets what is too old, some entries at a time.
CREATE FUNCTION sprag.tell(ns text, lock text, ms bigint, event jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
  INSERT INTO sprag.trail (space, name, at_ms, event) VALUES (ns, lock, ms, tell.event)
    RETURNING sequence INTO last;
  IF last % 32 = 0 THEN
    PERFORM sprag.forget_trail(last, 100);
  END IF;
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
