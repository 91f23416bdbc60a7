-- The short way of a queue: an exclusive lock that is held the short way is waited for, and handed
-- over to who is next. Each function answers null if that takes more.

-- The waiter that a command asks to be.
CREATE FUNCTION sprag.wait_of(ms bigint, ticket bigint, command jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  -- Force goes past the queue: as if it had been there long before everybody.
  forced boolean := coalesce(command -> 'steal' = '"force"', false);
  wait jsonb := jsonb_build_object('lease', command -> 'lease', 'party', command -> 'party',
    'mode', command -> 'mode', 'ttl_ms', command -> 'ttl_ms', 'renewed_ms', ms,
    'arrived_ms', CASE WHEN forced THEN 0 ELSE ms END,
    'priority', CASE WHEN forced THEN 127 ELSE (command ->> 'priority')::int END,
    'ticket', ticket, 'holder', command -> 'holder');
BEGIN
  IF command ? 'session' THEN
    wait := wait || jsonb_build_object('session', command -> 'session');
  END IF;
  IF (command ->> 'fixed')::boolean THEN
    wait := wait || '{"fixed": true}';
  END IF;
  RETURN wait;
END $$;

-- Tells a lease that it waits, behind a holder that is here to stay; of an advisory lock, one of the same
-- session. Most questions of a crowd are that: nothing is locked and nothing is written.
CREATE FUNCTION sprag.plain_wait(ns text, lock text, asked text, not_after_ms bigint, my_session text)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  wait jsonb := sprag.stored_wait(ns, lock, asked);
  l sprag.lock;
  us bigint;
BEGIN
  IF wait IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
    AND k.plain_lease <> asked AND k.plain_session IS NOT DISTINCT FROM my_session AND k.waiting > 0;
  us := sprag.now_us();
  IF l.space IS NULL OR us / 1000 > not_after_ms
    OR least(l.plain_us / 1000 + l.plain_ttl_ms, l.patience_ms) <= us / 1000 THEN
    RETURN NULL;
  END IF;
  -- Only the holder is asked for, and to remember others takes long.
  l.ended := '';
  RETURN jsonb_build_object('now_us', us, 'waiting', l.waiting,
    'holders', (sprag.whole(l)).holders, 'outcome', jsonb_build_object('queued',
      jsonb_build_object('ahead', sprag.ahead_of(ns, lock, wait))));
END $$;

-- Gives a lease its place behind a holder that is here to stay; of an advisory lock, one of the same
-- session.
CREATE FUNCTION sprag.plain_join(ns text, lock text, command jsonb, asked text, not_after_ms bigint,
  channel text, my_session text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  us bigint;
  ms bigint;
  wait jsonb;
  expires bigint;
  is_last boolean;
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
    AND k.plain_lease <> asked AND k.plain_session IS NOT DISTINCT FROM my_session
    AND k.waiting < (command ->> 'max_waiters')::int
    AND position(asked IN k.ended) = 0 AND (k.gone = '[]' OR position(asked IN k.gone::text) = 0)
    FOR UPDATE;
  us := sprag.now_us();
  ms := us / 1000;
  IF l.space IS NULL OR ms > not_after_ms OR l.plain_us / 1000 + l.plain_ttl_ms <= ms
    OR (l.waiting > 0 AND (l.patience_ms <= ms
      OR sprag.stored_wait(ns, lock, asked) IS NOT NULL)) THEN
    RETURN NULL;
  END IF;
  wait := sprag.wait_of(ms, l.tickets, command);
  expires := sprag.expires_of(wait);
  INSERT INTO sprag.waiter VALUES (ns, lock, asked, sprag.arrival_of(wait), l.tickets, expires, 0,
    channel, wait);
  UPDATE sprag.lock AS k SET version = k.version + 1, tickets = k.tickets + 1,
      waiting = k.waiting + 1,
      patience_ms = CASE k.waiting WHEN 0 THEN expires ELSE least(k.patience_ms, expires) END
    WHERE k.space = ns AND k.name = lock;
  -- Mostly it is, and to count takes long.
  is_last := NOT EXISTS (SELECT FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
    AND (w.arrival, w.ticket) > (sprag.arrival_of(wait), l.tickets));
  -- Only the holder is asked for, and to remember others takes long.
  l.ended := '';
  RETURN jsonb_build_object('now_us', us, 'waiting', l.waiting + 1,
    'holders', (sprag.whole(l)).holders, 'outcome', jsonb_build_object('queued',
      jsonb_build_object('ahead', CASE WHEN is_last THEN l.waiting
        ELSE sprag.ahead_of(ns, lock, wait) END)));
END $$;

-- Whom the lock is promised to, when `holder` is let in: who stands first now, if it is woken in the
-- same place. A holder that gives the lock back lets its heir in at once, inside of their process, and
-- the row says so later. So until then nobody else is let in: not by who comes later with a higher
-- priority, nor because the heir is silent. Only force takes a promise back, and robs both.
--
-- None of a lower priority than the holder came with is promised anything: where priorities are used,
-- the next important one may be on its way.
CREATE FUNCTION sprag.heir_of(holder sprag.waiter) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  first sprag.waiter;
BEGIN
  SELECT * INTO first FROM sprag.waiter AS w
    WHERE w.space = holder.space AND w.name = holder.name ORDER BY w.arrival, w.ticket LIMIT 1;
  IF first.channel = holder.channel AND first.request -> 'mode' = '"exclusive"'
    AND first.request ? 'session' AND holder.request ? 'session'
    AND (first.request ->> 'priority')::int >= (holder.request ->> 'priority')::int THEN
    RETURN first.lease;
  END IF;
  RETURN NULL;
END $$;

-- Lets a lease out and who is next in; of an advisory lock, one of the same session, which has the
-- session lock already. Who is let in is told its heir, if it has one.
CREATE FUNCTION sprag.plain_pass(ns text, lock text, asked text, channel text, my_session text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  first text;
  next sprag.waiter;
  next_plain text;
  new_fence bigint;
  new_heir text;
  new_heir_fence bigint;
  us bigint;
  ms bigint;
  last bigint;
  message text;
  told text := '';
BEGIN
  SELECT * INTO l FROM sprag.lock AS k
    WHERE k.space = ns AND k.name = lock AND k.plain_lease = asked
      AND k.plain_session IS NOT DISTINCT FROM my_session AND k.waiting > 0
    FOR UPDATE;
  us := sprag.now_us();
  ms := us / 1000;
  IF l.space IS NULL OR least(l.plain_us / 1000 + l.plain_ttl_ms, l.patience_ms) <= ms THEN
    RETURN NULL;
  END IF;
  new_fence := CASE WHEN l.heir_fence > l.fence THEN l.heir_fence
    ELSE greatest(l.fence + 1, sprag.draw(us)) END;
  IF new_fence > 9007199254740991 THEN
    RETURN NULL;
  END IF;
  first := l.heir_lease;
  IF first IS NULL THEN
    SELECT w.lease INTO first FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
      ORDER BY w.arrival, w.ticket LIMIT 1;
  END IF;
  DELETE FROM sprag.waiter AS w
    WHERE w.lease = first AND w.name = lock AND w.space IS NOT DISTINCT FROM ns
      AND w.request -> 'mode' = '"exclusive"' AND (w.request ->> 'priority')::int <> 127
      AND (my_session IS NULL OR w.channel IS NOT DISTINCT FROM plain_pass.channel)
    RETURNING * INTO next;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF l.waiting > 1 AND next.channel IS NOT NULL THEN
    new_heir_fence := greatest(new_fence + 1, sprag.draw(us));
    new_heir := CASE WHEN new_heir_fence <= 9007199254740991 THEN sprag.heir_of(next) END;
  END IF;
  next_plain := next.request::text;
  UPDATE sprag.lock AS k
    SET version = k.version + 1, fence = new_fence, plain = next_plain, plain_lease = next.lease,
      plain_us = us, plain_ttl_ms = (next.request ->> 'ttl_ms')::bigint, waiting = k.waiting - 1,
      heir_lease = new_heir, heir_fence = CASE WHEN new_heir IS NOT NULL THEN new_heir_fence END,
      ended = right(k.ended || asked || ' ', 264)
    WHERE k.space = ns AND k.name = lock;
  WITH written AS (
    INSERT INTO sprag.trail (space, name, at_ms, plain, session, fence, came, after_ms)
      VALUES (ns, lock, ms, l.plain, l.plain_session, l.fence, false, ms - l.plain_us / 1000),
        (ns, lock, ms, next_plain, NULL, new_fence, true,
          greatest(ms - (next.request ->> 'arrived_ms')::bigint, 0))
      RETURNING sequence
  ) SELECT max(sequence) INTO last FROM written;
  IF last % 32 < 2 THEN
    PERFORM sprag.forget_trail(last, 100);
  END IF;
  message := next.lease || ':' || new_fence || coalesce(':' || new_heir || ':' || new_heir_fence, '');
  IF next.channel = channel THEN
    told := ', "told": ["' || message || '"]';
  ELSIF next.channel IS NOT NULL THEN
    PERFORM pg_notify(next.channel, message);
  END IF;
  RETURN '{"now_us": ' || us || ', "outcome": "done"' || told || coalesce(', "session": "'
    || my_session || '", "outsider": null, "leaving": false', '') || '}';
END $$;

-- A lock that is not just free.
CREATE FUNCTION sprag.take_more(ns text, lock text, command text, asked text, ttl_ms bigint,
  not_after_ms bigint, channel text, lock_key bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  my_session text;
  wish jsonb := command::jsonb;
  joined jsonb;
BEGIN
  IF lock_key IS NOT NULL THEN
    PERFORM pg_advisory_unlock(lock_key);
    my_session := current_setting('sprag.session');
    channel := 'sprag_' || my_session;
    IF wish ? 'session' THEN
      wish := wish || jsonb_build_object('session', my_session);
    END IF;
  END IF;
  -- The first one who comes makes the row.
  IF sprag.now_us() / 1000 <= not_after_ms
    AND NOT EXISTS (SELECT FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock)
    AND sprag.make_lock(ns, lock) THEN
    RETURN sprag.take_v1(ns, lock, command, asked, ttl_ms, not_after_ms, channel, lock_key);
  END IF;
  IF (wish ->> 'queue')::boolean AND NOT wish ? 'steal' THEN
    joined := coalesce(sprag.plain_wait(ns, lock, asked, not_after_ms, my_session),
      sprag.plain_join(ns, lock, wish, asked, not_after_ms, channel, my_session));
  END IF;
  IF joined IS NOT NULL AND my_session IS NULL THEN
    PERFORM sprag.durable(false);
  ELSIF joined IS NOT NULL THEN
    joined := joined
      || jsonb_build_object('session', my_session, 'outsider', NULL, 'leaving', false);
  ELSIF my_session IS NULL THEN
    joined := sprag.apply_v1(ns, lock, wish, channel);
  ELSE
    joined := sprag.advisory_v1(ns, lock, wish, lock_key);
  END IF;
  RETURN joined::text;
END $$;

-- A lock that somebody waits for, or that is not held the short way.
CREATE FUNCTION sprag.leave_more(ns text, lock text, asked text, channel text, lock_key bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  my_session text;
  passed text;
  release jsonb := jsonb_build_object('do', 'release', 'lease', asked);
BEGIN
  IF lock_key IS NOT NULL THEN
    my_session := current_setting('sprag.session');
    channel := 'sprag_' || my_session;
  END IF;
  passed := sprag.plain_pass(ns, lock, asked, channel, my_session);
  IF passed IS NOT NULL THEN
    PERFORM sprag.durable(true);
    RETURN passed;
  ELSIF my_session IS NULL THEN
    RETURN sprag.apply_v1(ns, lock, release, channel)::text;
  END IF;
  RETURN sprag.advisory_v1(ns, lock, release, lock_key)::text;
END $$;
