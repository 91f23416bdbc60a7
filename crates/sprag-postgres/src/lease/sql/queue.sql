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
  IF NOT (command ->> 'queue')::boolean OR command ? 'steal' THEN
    RETURN NULL;
  END IF;
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

-- Lets a lease out and who is next in; of an advisory lock, one of the same session, which has the
-- session lock already.
CREATE FUNCTION sprag.plain_pass(ns text, lock text, asked text, channel text, my_session text)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  next sprag.waiter;
  us bigint;
  ms bigint;
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
    AND k.plain_lease = asked AND k.plain_session IS NOT DISTINCT FROM my_session AND k.waiting > 0
    FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT * INTO next FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
    ORDER BY w.arrival, w.ticket LIMIT 1;
  us := sprag.now_us();
  ms := us / 1000;
  IF next.lease IS NULL OR l.plain_us / 1000 + l.plain_ttl_ms <= ms OR l.patience_ms <= ms
    OR greatest(l.fence + 1, us) > 9007199254740991
    OR next.request -> 'mode' <> '"exclusive"' OR (next.request ->> 'priority')::int = 127
    OR (my_session IS NOT NULL AND next.channel IS DISTINCT FROM channel) THEN
    RETURN NULL;
  END IF;
  DELETE FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock AND w.arrival = next.arrival
    AND w.ticket = next.ticket;
  UPDATE sprag.lock AS k
    SET version = k.version + 1, fence = greatest(k.fence + 1, us), plain = next.request::text,
      plain_lease = next.lease, plain_us = us,
      plain_ttl_ms = (next.request ->> 'ttl_ms')::bigint, waiting = k.waiting - 1,
      ended = right(k.ended || asked || ' ', 264)
    WHERE k.space = ns AND k.name = lock;
  PERFORM sprag.tell_plain(ns, lock, ms, l.plain, l.plain_session, l.fence, false,
    ms - l.plain_us / 1000);
  l.fence := greatest(l.fence + 1, us);
  PERFORM sprag.tell_plain(ns, lock, ms, next.request::text, NULL, l.fence, true,
    greatest(ms - (next.request ->> 'arrived_ms')::bigint, 0));
  IF next.channel = channel THEN
    RETURN sprag.answer(us, '"done"')
      || jsonb_build_object('told', jsonb_build_array(next.lease || ':' || l.fence));
  ELSIF next.channel IS NOT NULL THEN
    PERFORM pg_notify(next.channel, next.lease || ':' || l.fence);
  END IF;
  RETURN sprag.answer(us, '"done"');
END $$;

-- What a client calls. The answer is the time and the fence, or that of the long way.
CREATE FUNCTION sprag.take_v1(ns text, lock text, command text, asked text, ttl_ms bigint,
  not_after_ms bigint, channel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  taken text := sprag.plain_take(ns, lock, command, asked, ttl_ms, not_after_ms, NULL, NULL);
  wish jsonb;
  joined jsonb;
BEGIN
  IF taken IS NOT NULL THEN
    PERFORM sprag.durable(true);
    RETURN taken;
  END IF;
  wish := command::jsonb;
  joined := sprag.plain_join(ns, lock, wish, asked, not_after_ms, channel, NULL);
  IF joined IS NOT NULL THEN
    PERFORM sprag.durable(false);
    RETURN joined::text;
  END IF;
  RETURN sprag.apply_v1(ns, lock, wish, channel)::text;
END $$;

CREATE FUNCTION sprag.leave_v1(ns text, lock text, asked text, channel text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  left_by text := sprag.plain_leave(ns, lock, asked);
  passed jsonb;
BEGIN
  IF left_by IS NOT NULL THEN
    PERFORM sprag.durable(false);
    RETURN left_by;
  END IF;
  passed := sprag.plain_pass(ns, lock, asked, channel, NULL);
  IF passed IS NOT NULL THEN
    PERFORM sprag.durable(true);
    RETURN passed::text;
  END IF;
  RETURN sprag.apply_v1(ns, lock, jsonb_build_object('do', 'release', 'lease', asked),
    channel)::text;
END $$;
