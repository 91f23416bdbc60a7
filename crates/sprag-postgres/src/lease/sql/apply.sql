-- One command on one lock, in one statement: reap, command, promote, write.

-- The way of requests that change nothing. Reads without a lock; null if that is not enough.
CREATE FUNCTION sprag.quick(ns text, lock text, command jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  us bigint;
  ms bigint;
  asked text := command ->> 'lease';
  hold jsonb;
  wait jsonb;
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock;
  IF l.plain_lease IS NOT NULL OR l.ended <> '' THEN
    l := sprag.whole(l);
  END IF;
  us := sprag.now_us();
  ms := us / 1000;
  IF command ->> 'do' = 'acquire' THEN
    IF ms > (command ->> 'not_after_ms')::bigint THEN
      RETURN sprag.answer(us, '{"refused": "late"}');
    ELSIF l.space IS NULL OR command ? 'steal' OR (l.waiting > 0 AND l.patience_ms <= ms)
      OR EXISTS (SELECT FROM jsonb_array_elements(l.holders) AS all_of(one)
        WHERE sprag.expires_of(one) <= ms) THEN
      RETURN NULL;
    END IF;
    -- Who is next may have room by now: a semaphore that was made larger, by who then did not stay.
    IF l.waiting > 0 AND NOT l.holders @> '[{"mode": "exclusive"}]' THEN
      RETURN NULL;
    END IF;
    hold := sprag.hold_of(l.holders, asked);
    IF hold IS NOT NULL THEN
      RETURN sprag.answer(us, sprag.granted(hold));
    ELSIF l.waiting > 0 THEN
      wait := sprag.stored_wait(ns, lock, asked);
    END IF;
    IF wait IS NOT NULL THEN
      RETURN sprag.answer(us, jsonb_build_object('queued',
          jsonb_build_object('ahead', sprag.ahead_of(ns, lock, wait))))
        || jsonb_build_object('waiting', l.waiting, 'holders', l.holders);
    ELSIF NOT (command ->> 'queue')::boolean AND l.holders @> '[{"mode": "exclusive"}]'
      AND jsonb_typeof(command -> 'mode') <> 'object'
      AND sprag.gone_reason(l.gone, asked) IS NULL THEN
      RETURN sprag.answer(us, '"held"')
        || jsonb_build_object('waiting', l.waiting, 'holders', l.holders);
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- Reads the record and keeps everybody else away from it until the end of the statement. The clock
-- is read when it is ours: who had to wait for it must not decide by an older time.
CREATE FUNCTION sprag.begin_step(ns text, lock text, channel text, make boolean) RETURNS sprag.step
LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  us bigint;
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock FOR UPDATE;
  IF NOT FOUND AND make THEN
    PERFORM sprag.make_lock(ns, lock);
    SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock FOR UPDATE;
  END IF;
  l := sprag.whole(l);
  us := sprag.now_us();
  RETURN ROW(ns, lock, channel, us, us / 1000,
    coalesce(l.version, 0), coalesce(l.fence, 0), coalesce(l.tickets, 0), l.permits,
    coalesce(l.holders, '[]'), coalesce(l.gone, '[]'), l.upgrader, coalesce(l.waiting, 0),
    coalesce(l.patience_ms, 0), l.heir_lease, l.heir_fence,
    false, false, NULL, NULL, NULL, '[]', NULL, '[]', NULL)::sprag.step;
END $$;

CREATE FUNCTION sprag.end_step(s sprag.step, renews boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  hold jsonb := s.holders -> 0;
  -- Whether the short way may go on from here. That of an advisory lock has a grip.
  plain_again boolean := hold -> 'mode' = '"exclusive"'
    AND s.fence IN ((hold ->> 'fence')::bigint, s.heir_fence)
    AND NOT hold ?| ARRAY['took_over', 'upgrading']
    AND coalesce(current_setting('sprag.session', true), '') = '';
BEGIN
  IF s.changed THEN
    -- An unused semaphore may come back with another number of permits.
    IF s.permits IS NOT NULL AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(s.holders) AS all_of(one)
        WHERE sprag.permits_of(one -> 'mode') > 0
      UNION ALL SELECT FROM sprag.waiter AS w
        WHERE w.space = s.ns AND w.name = s.lock AND w.permits > 0) THEN
      s.permits := NULL;
    END IF;
    PERFORM sprag.unfold(s.ns, s.lock);
    IF s.inherits IS NOT NULL THEN
      PERFORM sprag.inherit(s.ns, s.lock, s.inherits);
    END IF;
    UPDATE sprag.lock AS k
      SET version = s.version + 1, tickets = s.tickets, permits = s.permits,
        fence = CASE WHEN plain_again THEN (hold ->> 'fence')::bigint ELSE s.fence END,
        heir_lease = s.heir_lease, heir_fence = s.heir_fence,
        holders = CASE WHEN plain_again THEN '[]' ELSE s.holders END, gone = s.gone,
        upgrader = s.upgrader, waiting = s.waiting, patience_ms = s.patience_ms, ended = '',
        used_us = s.now_us,
        plain = CASE WHEN plain_again THEN hold::text END,
        plain_lease = CASE WHEN plain_again THEN hold ->> 'lease' END,
        plain_us = CASE WHEN plain_again THEN (hold ->> 'renewed_ms')::bigint * 1000
          ELSE k.plain_us END,
        plain_ttl_ms = CASE WHEN plain_again THEN (hold ->> 'ttl_ms')::bigint
          ELSE k.plain_ttl_ms END
      WHERE k.space = s.ns AND k.name = s.lock;
    -- Waiters that come and go are left out: they have no fence.
    PERFORM sprag.tell(s.ns, s.lock, s.now_ms, one)
      FROM jsonb_array_elements(s.events) WITH ORDINALITY AS all_of(one, place)
      WHERE (one ->> 'fence')::bigint > 0 ORDER BY place;
  END IF;
  PERFORM sprag.durable(renews OR s.events @> '[{"kind": "granted"}]');
END $$;

CREATE FUNCTION sprag.run(ns text, lock text, command jsonb, channel text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  s sprag.step;
  what text := command ->> 'do';
BEGIN
  s := sprag.begin_step(ns, lock, channel, what = 'acquire');
  IF s.now_ms > (command ->> 'not_after_ms')::bigint THEN
    RETURN sprag.answer(s.now_us, '{"refused": "late"}');
  END IF;
  s := sprag.reap(s);
  CASE what
    WHEN 'acquire' THEN s := sprag.do_acquire(s, command);
    WHEN 'renew' THEN s := sprag.do_renew(s, command);
    WHEN 'convert' THEN s := sprag.do_convert(s, command);
    WHEN 'release' THEN s := sprag.do_release(s, command);
    WHEN 'withdraw' THEN s := sprag.do_withdraw(s, command);
    WHEN 'evict' THEN s := sprag.do_evict(s, command);
    WHEN 'reap' THEN
      s := sprag.promote(s);
      s.outcome := '"done"';
  END CASE;
  IF s.exhausted AND (s.outcome = '"held"' OR s.outcome ? 'queued') THEN
    s.outcome := '{"refused": "fence_exhausted"}';
  END IF;
  -- A place in the queue may be forgotten in a crash: who has it asks again.
  PERFORM sprag.end_step(s, what IN ('acquire', 'renew', 'convert') AND s.outcome ? 'granted');
  RETURN sprag.answer(s.now_us, s.outcome)
    || CASE WHEN s.outcome = '"held"' OR s.outcome ? 'queued'
      THEN jsonb_build_object('waiting', s.waiting, 'holders', s.holders) ELSE '{}' END
    || CASE WHEN s.told <> '[]' THEN jsonb_build_object('told', s.told) ELSE '{}' END;
END $$;

-- What a client calls; the number is the schema's, so that no client calls another than its own.
CREATE FUNCTION sprag.apply_v1(ns text, lock text, command jsonb, channel text) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(sprag.quick(ns, lock, command), sprag.run(ns, lock, command, channel));
END $$;

-- A renewal of a lease that is not held the short way, where nothing else is to be done: nobody waits
-- or is to be upgraded, and nobody's time is over. Null if there is.
CREATE FUNCTION sprag.renew_hold(ns text, lock text, command jsonb, us bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  asked text := command ->> 'lease';
  found_holders jsonb;
BEGIN
  UPDATE sprag.lock AS k
    SET version = k.version + 1, holders = sprag.with_hold(k.holders,
      sprag.renewed(sprag.hold_of(k.holders, asked), (command ->> 'ttl_ms')::bigint, us / 1000))
    WHERE k.space = ns AND k.name = lock AND k.plain_lease IS NULL AND k.waiting = 0
      AND NOT command ? 'rebind' AND sprag.hold_of(k.holders, asked) IS NOT NULL
      AND NOT EXISTS (SELECT FROM jsonb_array_elements(k.holders) AS all_of(one)
        WHERE one ? 'upgrading' OR sprag.expires_of(one) <= us / 1000)
    RETURNING k.holders INTO found_holders;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN sprag.answer(us, sprag.granted(sprag.hold_of(found_holders, asked)));
END $$;

-- Renews those of some rows, which are locked, that are held the short way by a lease that wants it, and by
-- this session if locks end with one. `wanted` has the TTL of each lease; the fences of those that are
-- renewed. The rows are gone to straight away, whatever the planner believes about the table.
CREATE FUNCTION sprag.renew_plain(rows tid[], wanted jsonb, us bigint) RETURNS jsonb LANGUAGE plpgsql
SET enable_seqscan = off SET enable_indexscan = off SET enable_bitmapscan = off AS $$
DECLARE
  fences jsonb;
BEGIN
  WITH renewed AS (
    UPDATE sprag.lock AS k
      SET version = k.version + 1, plain_us = us,
        plain_ttl_ms = sprag.longer((wanted ->> k.plain_lease)::bigint, k.plain_us / 1000,
          k.plain_ttl_ms, us / 1000)
      WHERE k.ctid = ANY (rows) AND wanted ? k.plain_lease
        AND k.plain_us / 1000 + k.plain_ttl_ms > us / 1000
        AND (k.waiting = 0 OR k.patience_ms > us / 1000)
        AND coalesce(k.plain_session, '') = coalesce(current_setting('sprag.session', true), '')
      RETURNING k.plain_lease, k.fence
  ) SELECT jsonb_object_agg(r.plain_lease, r.fence) INTO fences FROM renewed AS r;
  RETURN fences;
END $$;

-- Renews those waiters of some locks, whose rows are locked, that are behind a holder which is here to stay,
-- so that nothing else is to be done. What each is told. One by one, so that no plan reads a whole table.
CREATE FUNCTION sprag.renew_waits(ns text, locks text[], leases text[], us bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  answers jsonb[] := '{}';
  told text[] := '{}';
  wait jsonb;
  lock text;
  counts boolean := false;
  count bigint := 0;
BEGIN
  FOR place IN 1 .. coalesce(cardinality(leases), 0) LOOP
    IF lock IS DISTINCT FROM locks[place] THEN
      PERFORM sprag.count_changes(ns, lock, count);
      lock := locks[place];
      count := 0;
      counts := EXISTS (SELECT FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
        AND k.plain_lease IS NOT NULL AND k.waiting > 0
        AND least(k.plain_us / 1000 + k.plain_ttl_ms, k.patience_ms) > us / 1000);
    END IF;
    CONTINUE WHEN NOT counts;
    UPDATE sprag.waiter AS w
      SET request = w.request || jsonb_build_object('renewed_ms', us / 1000),
        expires_ms = us / 1000 + (w.request ->> 'ttl_ms')::bigint
      WHERE w.lease = leases[place] AND w.name = lock AND w.space IS NOT DISTINCT FROM ns
      RETURNING w.request INTO wait;
    IF FOUND THEN
      count := count + 1;
      told := told || leases[place];
      answers := answers || sprag.answer(us, jsonb_build_object('queued',
        jsonb_build_object('ahead', sprag.ahead_of(ns, lock, wait))));
    END IF;
  END LOOP;
  PERFORM sprag.count_changes(ns, lock, count);
  RETURN (SELECT jsonb_object_agg(its.lease, its.answer) FROM unnest(told, answers) AS its(lease, answer));
END $$;

-- The version of a lock counts what has changed.
CREATE FUNCTION sprag.count_changes(ns text, lock text, count bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF count > 0 THEN
    UPDATE sprag.lock AS k SET version = k.version + count WHERE k.space = ns AND k.name = lock;
  END IF;
END $$;

-- Many renewals in one statement. All rows are locked first, in the order of their names, so that
-- no two batches wait for each other. It ends long before anybody gives it up: answers may be missing
-- at the end, and are asked for again. Whose answer says `plain` holds the lock the short way.
CREATE FUNCTION sprag.renew_v1(ns text, locks text[], commands jsonb, channel text,
  patience_us bigint) RETURNS jsonb[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  us bigint;
  rows tid[];
  last int;
  wanted jsonb;
  fences jsonb;
  waits jsonb;
  answers jsonb[] := '{}';
BEGIN
  -- Nor does it wait for longer than that for a row that somebody keeps.
  PERFORM set_config('lock_timeout', greatest(patience_us / 1000, 1)::text, true);
  SELECT array_agg(its.row ORDER BY named.place) INTO rows
    FROM (SELECT place, one FROM unnest(locks) WITH ORDINALITY AS all_of(one, place)
        ORDER BY one COLLATE "C") AS named
      LEFT JOIN LATERAL (SELECT k.ctid AS row FROM sprag.lock AS k
        WHERE k.space = ns AND k.name = named.one FOR UPDATE) AS its ON true;
  us := sprag.now_us();
  -- Some hundreds at a time, as the clock is looked at only in between.
  <<parts>>
  FOR start IN 1 .. cardinality(locks) BY 500 LOOP
    EXIT WHEN start > 1 AND sprag.now_us() - us > patience_us;
    last := least(start + 499, cardinality(locks));
    SELECT jsonb_object_agg(command ->> 'lease', command -> 'ttl_ms') INTO wanted
      FROM generate_series(start, last) AS place, LATERAL (SELECT commands -> (place - 1)) AS its(command)
      WHERE NOT command ? 'rebind';
    fences := coalesce(sprag.renew_plain(rows[start : last], wanted, us), '{}');
    -- Most that are not held wait.
    SELECT coalesce(sprag.renew_waits(ns, array_agg(locks[place] ORDER BY locks[place]),
        array_agg(command ->> 'lease' ORDER BY locks[place]), us), '{}')
      INTO waits
      FROM generate_series(start, last) AS place, LATERAL (SELECT commands -> (place - 1)) AS its(command)
      WHERE NOT command ? 'rebind' AND NOT fences ? (command ->> 'lease');
    SELECT answers || array_agg(CASE WHEN waits ? lease THEN waits -> lease WHEN fences ? lease THEN jsonb_build_object('now_us', us,
          'outcome', jsonb_build_object('granted', jsonb_build_object('fence', fences -> lease,
            'mode', 'exclusive', 'took_over', false)), 'plain', true) END ORDER BY place) INTO answers
      FROM generate_series(start, last) AS place,
        LATERAL (SELECT commands -> (place - 1) ->> 'lease') AS its(lease);
    FOR place IN start .. last LOOP
      CONTINUE WHEN answers[place] IS NOT NULL;
      IF place > 1 AND sprag.now_us() - us > patience_us THEN
        answers := answers[1 : place - 1];
        EXIT parts;
      END IF;
      answers[place] := coalesce(sprag.renew_hold(ns, locks[place], commands -> (place - 1), us),
        sprag.run(ns, locks[place], commands -> (place - 1), channel));
    END LOOP;
  END LOOP;
  PERFORM sprag.durable(true);
  RETURN answers;
END $$;

-- Adds to the trail what only a client knows.
CREATE FUNCTION sprag.note_v1(ns text, entries jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE last bigint;
BEGIN
  WITH written AS (
    INSERT INTO sprag.trail (space, name, at_ms, entry)
      SELECT ns, one ->> 'name', sprag.now_us() / 1000, one
        FROM jsonb_array_elements(entries) WITH ORDINALITY AS all_of(one, place) ORDER BY place
      RETURNING sequence
  ) SELECT max(sequence) INTO last FROM written;
  PERFORM sprag.forget_trail(last, 100);
  PERFORM sprag.durable(false);
END $$;
