-- The small words of the lock machine.

CREATE FUNCTION sprag.now_us() RETURNS bigint LANGUAGE sql VOLATILE
RETURN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

CREATE FUNCTION sprag.permits_of(mode jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN coalesce((mode -> 'permits' ->> 'count')::bigint, 0);

CREATE FUNCTION sprag.expires_of(lease jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN (lease ->> 'renewed_ms')::bigint + (lease ->> 'ttl_ms')::bigint;

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
CREATE FUNCTION sprag.with_hold(holders jsonb, hold jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
RETURN (SELECT jsonb_agg(CASE one ->> 'lease' WHEN hold ->> 'lease' THEN hold ELSE one END
  ORDER BY place) FROM jsonb_array_elements(holders) WITH ORDINALITY AS all_of(one, place));

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
  IF last % 100 = 0 THEN
    PERFORM sprag.forget_trail(last);
  END IF;
END $$;

-- Whoever else does so meanwhile is not waited for.
CREATE FUNCTION sprag.forget_trail(last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM sprag.trail WHERE sequence IN (
    SELECT t.sequence FROM sprag.trail AS t WHERE t.sequence <= last - 10000
      ORDER BY t.sequence LIMIT 1000 FOR UPDATE SKIP LOCKED);
END $$;

-- What was granted or renewed must not be forgotten in a crash. What was given back may.
CREATE FUNCTION sprag.durable(must boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT must THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;
