-- The short way of most requests: an exclusive lock that nobody waits for is taken and given back.
-- Nothing of the command is read that the client has not taken out of it, and nothing is written
-- but what it says. Whoever comes with more than that sees the whole record.

-- The record as it is without the short way.
CREATE FUNCTION sprag.whole(l sprag.lock) RETURNS sprag.lock LANGUAGE plpgsql STABLE AS $$
DECLARE
  command jsonb;
  hold jsonb;
  lease text;
BEGIN
  IF l.ended <> '' THEN
    FOREACH lease IN ARRAY string_to_array(rtrim(l.ended), ' ') LOOP
      l.gone := sprag.remember(l.gone, lease, '"released"');
    END LOOP;
    l.ended := '';
  END IF;
  IF l.plain_lease IS NOT NULL THEN
    command := l.plain::jsonb;
    hold := jsonb_build_object('lease', l.plain_lease, 'party', command -> 'party',
      'mode', 'exclusive', 'fence', l.fence, 'ttl_ms', l.plain_ttl_ms,
      'renewed_ms', l.plain_us / 1000, 'holder', command -> 'holder');
    IF command ? 'session' THEN
      hold := hold || jsonb_build_object('session',
        coalesce(l.plain_session, command ->> 'session'));
    END IF;
    IF (command ->> 'fixed')::boolean THEN
      hold := hold || '{"fixed": true}';
    END IF;
    l.holders := jsonb_build_array(hold);
    l.plain_lease := NULL;
    l.fence := greatest(l.fence, l.heir_fence);
  END IF;
  RETURN l;
END $$;

-- Makes the row of a lock; its fence begins behind those of all rows that were cleared away.
CREATE FUNCTION sprag.make_lock(ns text, lock text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sprag.lock (space, name, fence, used_us)
    VALUES (ns, lock, coalesce((SELECT n.floor FROM sprag.namespace AS n WHERE n.space = ns), 0),
      sprag.now_us())
    ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- So that there are never many more than are used.
  PERFORM sprag.sweep(4, false, sprag.keeps_us());
  RETURN true;
END $$;

-- Before the whole record is written: what the plain holder of an advisory lock has.
CREATE FUNCTION sprag.unfold(ns text, lock text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sprag.grip
    SELECT k.plain_lease, ns, lock, k.key, false, k.plain_pid, k.plain_session FROM sprag.lock AS k
      WHERE k.space = ns AND k.name = lock AND k.plain_lease IS NOT NULL
        AND k.plain_session IS NOT NULL
    ON CONFLICT DO NOTHING;
END $$;

-- Before the record is written in which the heir has the lock: it may be inside already, so the session
-- lock of its predecessor, which is of the same session, is its own from now on and never let go.
CREATE FUNCTION sprag.inherit(ns text, lock text, heir text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE sprag.grip AS g SET lease = heir, asked_ms = NULL FROM sprag.lock AS k
    WHERE k.space = ns AND k.name = lock AND k.key IS NOT NULL AND k.heir_lease = heir
      AND g.lease = coalesce(k.plain_lease, k.holders -> 0 ->> 'lease') AND NOT g.shared;
END $$;

-- Lets a lease in: first the key, if it is an advisory lock, then the row. The clock is read when the
-- row is ours. The answer is the time, the fence and the session, or that of a longer way.
--
-- What is called here for every lock stands here: a call of a function is as dear as a statement, and
-- so is PERFORM, but not an assignment.
CREATE FUNCTION sprag.take_v1(ns text, lock text, command text, asked text, ttl_ms bigint,
  not_after_ms bigint, channel text, lock_key bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  my_session text;
  number bigint;
  new_fence bigint;
  us bigint;
  last bigint;
BEGIN
  IF lock_key IS NOT NULL THEN
    my_session := current_setting('sprag.session');
    IF sprag.is_quiet() OR NOT pg_try_advisory_lock(lock_key) THEN
      RETURN sprag.advisory_v1(ns, lock, command::jsonb, lock_key)::text;
    END IF;
    number := nextval('sprag.fences');
  END IF;
  UPDATE sprag.lock AS k
    SET version = k.version + 1, tickets = k.tickets + 1, permits = NULL,
      fence = greatest(k.fence + 1, coalesce(number, sprag.now_us())), plain = command, plain_lease = asked,
      plain_us = sprag.now_us(), plain_ttl_ms = take_v1.ttl_ms, key = coalesce(k.key, lock_key),
      plain_session = my_session,
      plain_pid = CASE WHEN my_session IS NOT NULL THEN pg_backend_pid() END
    WHERE k.space = ns AND k.name = lock AND k.plain_lease IS NULL AND k.holders = '[]'
      AND k.waiting = 0 AND sprag.now_us() / 1000 <= not_after_ms
      AND position(asked IN k.ended) = 0 AND (k.gone = '[]' OR position(asked IN k.gone::text) = 0)
      AND greatest(k.fence + 1, coalesce(number, sprag.now_us())) <= 9007199254740991
    RETURNING k.fence, k.plain_us INTO new_fence, us;
  IF NOT FOUND THEN
    RETURN sprag.take_more(ns, lock, command, asked, ttl_ms, not_after_ms, channel, lock_key);
  END IF;
  INSERT INTO sprag.trail (space, name, at_ms, plain, session, fence, came, after_ms)
    VALUES (ns, lock, us / 1000, command, my_session, new_fence, true, 0)
    RETURNING sequence INTO last;
  IF last % 32 = 0 THEN
    PERFORM sprag.forget_trail(last, 100);
  END IF;
  IF my_session IS NULL AND current_setting('synchronous_commit') <> 'on' THEN
    PERFORM sprag.durable(true);
  END IF;
  RETURN us || ' ' || new_fence || ' ' || coalesce(my_session, '');
END $$;

-- Lets a lease out.
CREATE FUNCTION sprag.leave_v1(ns text, lock text, asked text, channel text, lock_key bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  command text;
  its_session text;
  its_fence bigint;
  since_us bigint;
  us bigint;
  last bigint;
  done text;
BEGIN
  UPDATE sprag.lock AS k
    SET version = k.version + 1, plain_lease = NULL, used_us = sprag.now_us(),
      ended = right(k.ended || asked || ' ', 264)
    WHERE k.space = ns AND k.name = lock AND k.plain_lease = asked AND k.waiting = 0
      AND k.plain_us / 1000 + k.plain_ttl_ms > sprag.now_us() / 1000
    RETURNING k.plain, k.plain_session, k.fence, k.plain_us
    INTO command, its_session, its_fence, since_us;
  IF NOT FOUND THEN
    RETURN sprag.leave_more(ns, lock, asked, channel, lock_key);
  END IF;
  us := sprag.now_us();
  INSERT INTO sprag.trail (space, name, at_ms, plain, session, fence, came, after_ms)
    VALUES (ns, lock, us / 1000, command, its_session, its_fence, false,
      us / 1000 - since_us / 1000)
    RETURNING sequence INTO last;
  IF last % 32 = 0 THEN
    PERFORM sprag.forget_trail(last, 100);
  END IF;
  IF lock_key IS NULL THEN
    done := set_config('synchronous_commit', 'off', true);
  ELSIF its_session = current_setting('sprag.session') THEN
    done := pg_advisory_unlock(lock_key);
  END IF;
  RETURN us || ' 0 ' || coalesce(its_session, '');
END $$;

-- What an entry of the trail tells.
CREATE FUNCTION sprag.event_of(t sprag.trail) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  hold jsonb;
BEGIN
  IF t.plain IS NULL THEN
    RETURN t.event;
  END IF;
  hold := t.plain::jsonb || jsonb_build_object('fence', t.fence, 'mode', 'exclusive');
  IF t.session IS NOT NULL THEN
    hold := hold || jsonb_build_object('session', t.session);
  END IF;
  RETURN sprag.event(CASE WHEN t.came THEN '"granted"'::jsonb ELSE '{"gone": "released"}' END, hold,
    t.after_ms);
END $$;
