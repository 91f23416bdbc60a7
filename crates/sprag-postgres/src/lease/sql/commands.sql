-- What a lock can be asked to do. A port of `record::apply`, name by name.

-- Bare locks that were given back are remembered by their session.
CREATE FUNCTION sprag.gone_outcome(s sprag.step, lease text) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('gone', coalesce(sprag.gone_reason(s.gone, lease),
  CASE WHEN position(lease IN coalesce(current_setting('sprag.ended', true), '')) > 0
    THEN '"released"'::jsonb END, '"state_lost"'));

-- How many are ahead of a waiter. Of very many only that they are many: all who wait ask this over and over,
-- and to count takes longer the more there are.
CREATE FUNCTION sprag.ahead_of(ns text, lock text, wait jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  its_arrival bigint := sprag.arrival_of(wait);
  its_ticket bigint := (wait ->> 'ticket')::bigint;
BEGIN
  RETURN (SELECT count(*) FROM (SELECT FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
    AND (w.arrival, w.ticket) < (its_arrival, its_ticket)
    ORDER BY w.arrival, w.ticket LIMIT 64) AS first);
END $$;

CREATE FUNCTION sprag.stored_wait(ns text, lock text, asked text) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT w.request FROM sprag.waiter AS w
    WHERE w.lease = asked AND w.name = lock AND w.space IS NOT DISTINCT FROM ns);
END $$;

CREATE FUNCTION sprag.outcome_of_waiting(s sprag.step, lease text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  hold jsonb := sprag.hold_of(s.holders, lease);
  wait jsonb;
BEGIN
  IF hold IS NOT NULL THEN
    RETURN sprag.granted(hold);
  END IF;
  IF s.waiting > 0 THEN
    wait := sprag.stored_wait(s.ns, s.lock, lease);
  END IF;
  IF wait IS NOT NULL THEN
    RETURN jsonb_build_object('queued',
      jsonb_build_object('ahead', sprag.ahead_of(s.ns, s.lock, wait)));
  END IF;
  RETURN sprag.gone_outcome(s, lease);
END $$;

-- Whether the request can be served at all; else why not.
CREATE FUNCTION sprag.admit(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  taken bigint := (command -> 'mode' -> 'permits' ->> 'count')::bigint;
  of_all bigint := (command -> 'mode' -> 'permits' ->> 'of')::bigint;
  hopeless jsonb;
BEGIN
  IF (command ->> 'queue')::boolean AND s.waiting >= (command ->> 'max_waiters')::int THEN
    s.outcome := '{"refused": "queue_full"}';
  ELSIF of_all IS NULL THEN
    RETURN;
  ELSIF taken = 0 OR taken > of_all THEN
    s.outcome := '{"refused": "bad_permits"}';
  ELSIF s.permits <> of_all AND NOT (command ->> 'resize')::boolean THEN
    s.outcome := jsonb_build_object('refused', jsonb_build_object('limit_mismatch', s.permits));
  ELSIF s.permits IS DISTINCT FROM of_all THEN
    s.permits := of_all;
    s.changed := true;
    -- Who could never be granted would block the queue for ever.
    FOR hopeless IN
      SELECT w.request FROM sprag.waiter AS w
        WHERE w.space = s.ns AND w.name = s.lock AND w.permits > of_all
        ORDER BY w.arrival, w.ticket
    LOOP
      s := sprag.bury_wait(s, hopeless, '"limit_lowered"');
    END LOOP;
  END IF;
END $$;

CREATE FUNCTION sprag.may_go(s sprag.step, hold jsonb, steal jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  ttl bigint := (hold ->> 'ttl_ms')::bigint;
BEGIN
  IF steal = '"force"' THEN
    RETURN true;
  ELSIF steal ? 'overdue' THEN
    RETURN greatest(s.now_ms - (hold ->> 'renewed_ms')::bigint, 0) >= greatest(
      (steal ->> 'overdue')::bigint,
      CASE WHEN (hold ->> 'fixed')::boolean THEN ttl ELSE ttl / 3 * 2 END);
  END IF;
  RETURN (steal ->> 'seen')::bigint = s.version;
END $$;

-- Takes stale or forced holders out of the way: all that are in the way, or none.
CREATE FUNCTION sprag.push_aside(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  steal jsonb := command -> 'steal';
  mode jsonb := command -> 'mode';
  stolen jsonb := jsonb_build_object('stolen', jsonb_build_object(
    'by', command -> 'holder' -> 'worker_id', 'forced', steal = '"force"'));
  told int := jsonb_array_length(s.events);
  losses jsonb;
  stays boolean;
  oldest bigint;
  heir jsonb;
BEGIN
  SELECT jsonb_agg(CASE WHEN blocks THEN stolen END ORDER BY place),
      bool_or(blocks AND NOT sprag.may_go(s, one, steal)) INTO losses, stays
    FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place),
      LATERAL (SELECT NOT sprag.coexist(one -> 'mode', mode)
        OR coalesce((one ->> 'upgrading')::boolean, false) AS blocks) AS b;
  IF stays THEN
    RETURN;
  END IF;
  IF steal = '"force"' AND s.heir_lease IS NOT NULL THEN
    -- It may be inside: its predecessor lets it in before that is written here.
    heir := sprag.stored_wait(s.ns, s.lock, s.heir_lease);
    s := sprag.bury_wait(s, heir, stolen);
  END IF;
  IF losses IS NOT NULL THEN
    s := sprag.remove_holders(s, losses);
  END IF;
  -- Permit holders leave one by one, oldest first, until there is room.
  WHILE NOT sprag.has_room_for(s, mode) LOOP
    SELECT min((one ->> 'fence')::bigint) INTO oldest
      FROM jsonb_array_elements(s.holders) AS all_of(one) WHERE sprag.may_go(s, one, steal);
    EXIT WHEN oldest IS NULL;
    SELECT jsonb_agg(CASE WHEN (one ->> 'fence')::bigint = oldest THEN stolen END ORDER BY place)
      INTO losses FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place);
    s := sprag.remove_holders(s, losses);
  END LOOP;
  IF jsonb_array_length(s.events) > told THEN
    s.thief := command ->> 'lease';
  END IF;
END $$;

CREATE FUNCTION sprag.do_acquire(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  waits boolean := false;
  changed_before boolean;
  told int;
BEGIN
  IF s.waiting > 0 AND sprag.hold_of(s.holders, asked) IS NULL THEN
    waits := sprag.stored_wait(s.ns, s.lock, asked) IS NOT NULL;
  END IF;
  IF sprag.hold_of(s.holders, asked) IS NULL AND NOT waits THEN
    IF sprag.gone_reason(s.gone, asked) IS NOT NULL THEN
      s.outcome := sprag.gone_outcome(s, asked);
    ELSE
      s := sprag.admit(s, command);
    END IF;
    IF s.outcome IS NOT NULL THEN
      s := sprag.promote(s);
      RETURN;
    END IF;
  END IF;
  IF command ? 'steal' AND sprag.hold_of(s.holders, asked) IS NULL THEN
    s := sprag.push_aside(s, command);
  END IF;
  IF waits OR sprag.hold_of(s.holders, asked) IS NOT NULL THEN
    s := sprag.promote(s);
    s.outcome := sprag.outcome_of_waiting(s, asked);
    RETURN;
  END IF;
  changed_before := s.changed;
  told := jsonb_array_length(s.events);
  s.staged := sprag.wait_of(s.now_ms, s.tickets, command);
  s.tickets := s.tickets + 1;
  s.changed := true;
  s := sprag.promote(s);
  IF s.staged IS NOT NULL AND NOT (command ->> 'queue')::boolean THEN
    -- It only tried, so it leaves no trace: nothing to write.
    s.staged := NULL;
    s.tickets := s.tickets - 1;
    s.changed := changed_before OR jsonb_array_length(s.events) > told;
    s.outcome := '"held"';
  ELSE
    IF s.staged IS NOT NULL THEN
      s := sprag.enqueue(s);
    END IF;
    s.outcome := sprag.outcome_of_waiting(s, asked);
  END IF;
END $$;

-- Gives the waiter that is in no row yet its row.
CREATE FUNCTION sprag.enqueue(INOUT s sprag.step) LANGUAGE plpgsql AS $$
DECLARE
  wait jsonb := s.staged;
  expires bigint := sprag.expires_of(wait);
BEGIN
  INSERT INTO sprag.waiter VALUES (s.ns, s.lock, wait ->> 'lease', sprag.arrival_of(wait),
    (wait ->> 'ticket')::bigint, expires, sprag.permits_of(wait -> 'mode'), s.channel, wait);
  s.patience_ms := CASE s.waiting WHEN 0 THEN expires ELSE least(s.patience_ms, expires) END;
  s.waiting := s.waiting + 1;
  s.staged := NULL;
END $$;

CREATE FUNCTION sprag.do_renew(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  hold jsonb := sprag.hold_of(s.holders, asked);
BEGIN
  IF jsonb_typeof(command -> 'rebind') = 'string' AND hold -> 'session' <> command -> 'rebind' THEN
    -- A ticket is good for the first who comes, who may ask again.
    s := sprag.promote(s);
    s.outcome := '{"gone": "adopted"}';
    RETURN;
  ELSIF hold IS NOT NULL THEN
    hold := sprag.renewed(hold, (command ->> 'ttl_ms')::bigint, s.now_ms);
    IF command -> 'rebind' = 'false' THEN
      hold := (hold - 'session') || jsonb_build_object('fixed', true, 'party', asked);
    ELSIF command ? 'rebind' THEN
      hold := (hold - 'fixed') || jsonb_build_object('session', command -> 'rebind');
    END IF;
    s.holders := sprag.with_hold(s.holders, hold);
    s.changed := true;
  ELSIF s.waiting > 0 THEN
    UPDATE sprag.waiter AS w
      SET request = w.request || jsonb_build_object('renewed_ms', s.now_ms),
        expires_ms = s.now_ms + (w.request ->> 'ttl_ms')::bigint
      WHERE w.lease = asked AND w.name = s.lock AND w.space IS NOT DISTINCT FROM s.ns;
    s.changed := s.changed OR FOUND;
  END IF;
  s := sprag.promote(s);
  s.outcome := sprag.outcome_of_waiting(s, asked);
END $$;

CREATE FUNCTION sprag.do_convert(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  hold jsonb := sprag.hold_of(s.holders, asked);
  was jsonb := hold -> 'mode';
  wanted jsonb := command -> 'to';
  alone boolean := jsonb_array_length(s.holders) = 1;
BEGIN
  IF hold IS NULL THEN
    s := sprag.promote(s);
    s.outcome := sprag.gone_outcome(s, asked);
    RETURN;
  ELSIF hold -> 'fence' <> command -> 'fence'
    OR (was = wanted AND jsonb_typeof(wanted) <> 'object') THEN
    NULL;
  ELSIF (was = '"exclusive"' AND wanted IN ('"upgradable"', '"shared"'))
    OR (was = '"upgradable"' AND wanted = '"shared"') THEN
    s.holders := sprag.with_hold(s.holders,
      (hold - 'upgrading') || jsonb_build_object('mode', wanted));
    s.changed := true;
  ELSIF wanted = '"exclusive"' AND ((was = '"upgradable"' AND (alone OR (command ->> 'queue')::boolean))
    OR (was = '"shared"' AND alone)) THEN
    s.changed := s.changed OR NOT hold ? 'upgrading';
    s.upgrader := s.channel;
    s.holders := sprag.with_hold(s.holders, hold || '{"upgrading": true}');
  ELSIF wanted = '"exclusive"' AND was IN ('"upgradable"', '"shared"') THEN
    s.outcome := '"held"';
  ELSE
    s.outcome := jsonb_build_object('refused', jsonb_build_object('bad_conversion', was));
  END IF;
  IF alone AND was <> '"exclusive"' THEN
    -- It is not to be woken for what it is told right now.
    s.upgrader := NULL;
  END IF;
  s := sprag.promote(s);
  IF s.outcome IS NULL THEN
    hold := sprag.hold_of(s.holders, asked);
    s.outcome := CASE WHEN hold ? 'upgrading' THEN '{"queued": {"ahead": 0}}'::jsonb
      ELSE sprag.granted(hold) END;
  END IF;
END $$;

CREATE FUNCTION sprag.do_release(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  losses jsonb;
  wait jsonb;
  freed boolean := false;
BEGIN
  SELECT jsonb_agg(CASE WHEN one ->> 'lease' = asked THEN '"released"'::jsonb END ORDER BY place)
    INTO losses FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place);
  IF losses @> '["released"]' THEN
    s := sprag.remove_holders(s, losses);
    freed := true;
  ELSIF s.waiting > 0 THEN
    wait := sprag.stored_wait(s.ns, s.lock, asked);
    IF wait IS NOT NULL THEN
      s := sprag.bury_wait(s, wait, '"released"');
      freed := true;
    END IF;
  END IF;
  s := sprag.promote(s);
  s.outcome := CASE WHEN freed THEN '"done"' ELSE sprag.gone_outcome(s, asked) END;
END $$;

CREATE FUNCTION sprag.do_withdraw(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  hold jsonb := sprag.hold_of(s.holders, asked);
  wait jsonb;
BEGIN
  IF hold ? 'upgrading' THEN
    s.holders := sprag.with_hold(s.holders, hold - 'upgrading');
    s.upgrader := NULL;
    s.changed := true;
  ELSIF s.waiting > 0 THEN
    wait := sprag.stored_wait(s.ns, s.lock, asked);
    IF wait IS NOT NULL THEN
      s := sprag.bury_wait(s, wait, '"released"');
    END IF;
  END IF;
  s := sprag.promote(s);
  s.outcome := '"done"';
END $$;

CREATE FUNCTION sprag.do_evict(INOUT s sprag.step, command jsonb) LANGUAGE plpgsql AS $$
DECLARE
  loss jsonb := jsonb_build_object('broken', jsonb_build_object('by', command -> 'by',
    'reason', command -> 'reason', 'fence', command -> 'fence'));
  losses jsonb;
  broken jsonb;
BEGIN
  SELECT jsonb_agg(CASE WHEN one -> 'fence' = command -> 'fence' THEN loss END ORDER BY place),
      jsonb_agg(one -> 'holder' ORDER BY place) FILTER (WHERE one -> 'fence' = command -> 'fence')
    INTO losses, broken FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place);
  IF broken IS NOT NULL THEN
    s := sprag.remove_holders(s, losses);
  END IF;
  s := sprag.promote(s);
  s.outcome := jsonb_build_object('evicted', coalesce(broken, '[]'));
END $$;
