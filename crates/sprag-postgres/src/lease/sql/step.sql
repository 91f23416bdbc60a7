-- One application of a command, half-way: the record, and what has happened to it so far.
CREATE TYPE sprag.step AS (
  ns text, lock text, channel text, now_us bigint, now_ms bigint,
  version bigint, fence bigint, tickets bigint, permits bigint, holders jsonb, gone jsonb,
  upgrader text, waiting int, patience_ms bigint, heir_lease text, heir_fence bigint,
  changed boolean,
  -- No fence was left for a grant that was due.
  exhausted boolean,
  -- Who pushed somebody aside.
  thief text,
  -- The heir, if it was let in.
  inherits text,
  -- A waiter that is in no row yet.
  staged jsonb,
  events jsonb,
  -- Where the waiter is woken that was taken out of the queue last.
  woken_at text,
  -- Who of the asking process is woken by the answer.
  told jsonb,
  outcome jsonb
);

-- Wakes who waits there. A notification takes a lock of the whole server, so the asking process
-- learns from its answer.
CREATE FUNCTION sprag.wake(INOUT s sprag.step, at text, lease text, fence bigint)
LANGUAGE plpgsql AS $$
BEGIN
  IF at = s.channel THEN
    s.told := s.told || to_jsonb(lease || ':' || fence);
  ELSIF at IS NOT NULL THEN
    PERFORM pg_notify(at, lease || ':' || fence);
  END IF;
END $$;

CREATE FUNCTION sprag.bury(INOUT s sprag.step, hold jsonb, loss jsonb) LANGUAGE plpgsql AS $$
BEGIN
  s.changed := true;
  s.gone := sprag.remember(s.gone, hold ->> 'lease', loss);
  IF loss ? 'stolen' OR loss ? 'broken' THEN
    -- Whoever has it hears of it, and renews it: the answer says what became of it.
    PERFORM pg_notify('sprag_evicted', 'evicted ' || (hold ->> 'lease'));
  END IF;
  s.events := s.events || sprag.event(jsonb_build_object('gone', loss), hold,
    s.now_ms - (hold ->> 'renewed_ms')::bigint);
  IF (hold ->> 'upgrading')::boolean AND s.upgrader IS NOT NULL THEN
    s := sprag.wake(s, s.upgrader, hold ->> 'lease', 0);
    s.upgrader := NULL;
  END IF;
END $$;

-- Takes out the holders for whom there is a loss; `losses` has one or null for each.
CREATE FUNCTION sprag.remove_holders(INOUT s sprag.step, losses jsonb) LANGUAGE plpgsql AS $$
DECLARE
  before jsonb := s.holders;
BEGIN
  s.holders := '[]';
  FOR place IN 0 .. jsonb_array_length(before) - 1 LOOP
    IF losses -> place = 'null' THEN
      s.holders := s.holders || (before -> place);
    ELSE
      s := sprag.bury(s, before -> place, losses -> place);
    END IF;
  END LOOP;
END $$;

-- Takes a waiter out of the queue.
CREATE FUNCTION sprag.remove_wait(INOUT s sprag.step, wait jsonb) LANGUAGE plpgsql AS $$
BEGIN
  s.woken_at := NULL;
  IF s.staged ->> 'lease' = wait ->> 'lease' THEN
    s.staged := NULL;
    RETURN;
  END IF;
  DELETE FROM sprag.waiter AS w
    WHERE w.lease = wait ->> 'lease' AND w.name = s.lock AND w.space IS NOT DISTINCT FROM s.ns
    RETURNING w.channel INTO s.woken_at;
  s.waiting := s.waiting - 1;
  IF s.heir_lease = wait ->> 'lease' THEN
    s.heir_lease := NULL;
    s.heir_fence := NULL;
  END IF;
END $$;

CREATE FUNCTION sprag.bury_wait(INOUT s sprag.step, wait jsonb, loss jsonb) LANGUAGE plpgsql AS $$
BEGIN
  s := sprag.remove_wait(s, wait);
  s := sprag.bury(s, wait, loss);
  IF loss <> '"released"' THEN
    s := sprag.wake(s, s.woken_at, wait ->> 'lease', 0);
  END IF;
END $$;

-- Of very many waiters whose time is over, or whose sessions are, only those in front are told so. The others
-- are removed at once, and learn that they are gone when they ask: to tell each takes longer than a statement may.
CREATE FUNCTION sprag.drop_crowd(INOUT s sprag.step, over text[]) LANGUAGE plpgsql AS $$
DECLARE
  dropped int;
BEGIN
  WITH excess AS (
    SELECT w.lease FROM sprag.waiter AS w WHERE w.space = s.ns AND w.name = s.lock
      AND w.lease IS DISTINCT FROM s.heir_lease
      AND CASE WHEN over IS NULL THEN w.expires_ms <= s.now_ms ELSE w.request ->> 'session' = ANY (over) END
      ORDER BY w.arrival, w.ticket OFFSET 100
  ) DELETE FROM sprag.waiter AS w USING excess AS e
      WHERE w.lease = e.lease AND w.name = s.lock AND w.space IS NOT DISTINCT FROM s.ns;
  GET DIAGNOSTICS dropped = ROW_COUNT;
  s.waiting := s.waiting - dropped;
  s.changed := s.changed OR dropped > 0;
END $$;

-- Takes out the holders and waiters whose time is over. Who is promised the lock may be inside
-- already, and counts from its last question, which is no sign of life here: it stays.
CREATE FUNCTION sprag.reap(INOUT s sprag.step) LANGUAGE plpgsql AS $$
DECLARE
  losses jsonb;
  over jsonb;
BEGIN
  SELECT jsonb_agg(CASE WHEN sprag.expires_of(one) <= s.now_ms THEN '"expired"'::jsonb END
      ORDER BY place) INTO losses
    FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place);
  IF losses @> '["expired"]' THEN
    s := sprag.remove_holders(s, losses);
  END IF;
  IF s.waiting > 0 AND s.patience_ms <= s.now_ms THEN
    s := sprag.drop_crowd(s, NULL);
    FOR over IN
      SELECT w.request FROM sprag.waiter AS w
        WHERE w.space = s.ns AND w.name = s.lock AND w.expires_ms <= s.now_ms
          AND w.lease IS DISTINCT FROM s.heir_lease
        ORDER BY w.arrival, w.ticket
    LOOP
      s := sprag.bury_wait(s, over, '"expired"');
    END LOOP;
    -- Nobody else waits: for ever.
    SELECT coalesce(min(w.expires_ms), 9007199254740991) INTO s.patience_ms FROM sprag.waiter AS w
      WHERE w.space = s.ns AND w.name = s.lock AND w.lease IS DISTINCT FROM s.heir_lease;
    UPDATE sprag.lock AS k SET patience_ms = s.patience_ms
      WHERE k.space = s.ns AND k.name = s.lock;
  END IF;
END $$;

-- ---- promote -------------------------------------------------------------------------------

CREATE FUNCTION sprag.next_fence(INOUT s sprag.step) LANGUAGE plpgsql AS $$
DECLARE
  next bigint := greatest(s.fence + 1, sprag.draw(s.now_us));
BEGIN
  s.exhausted := next > 9007199254740991;
  IF NOT s.exhausted THEN
    s.fence := next;
  END IF;
END $$;

CREATE FUNCTION sprag.has_room_for(s sprag.step, mode jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  wanted bigint := sprag.permits_of(mode);
  fits boolean;
  taken bigint;
BEGIN
  SELECT coalesce(bool_and(sprag.coexist(one -> 'mode', mode)), true),
      coalesce(sum(sprag.permits_of(one -> 'mode')), 0)
    INTO fits, taken FROM jsonb_array_elements(s.holders) AS all_of(one);
  RETURN fits AND (wanted = 0 OR taken + wanted <= coalesce(s.permits, 0));
END $$;

CREATE FUNCTION sprag.head(s sprag.step) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  first jsonb;
BEGIN
  IF s.heir_lease IS NOT NULL THEN
    first := sprag.stored_wait(s.ns, s.lock, s.heir_lease);
    IF first IS NOT NULL THEN
      -- Whoever came since, with whatever priority.
      RETURN first;
    END IF;
  END IF;
  IF s.waiting > 0 THEN
    SELECT w.request INTO first FROM sprag.waiter AS w WHERE w.space = s.ns AND w.name = s.lock
      ORDER BY w.arrival, w.ticket LIMIT 1;
  END IF;
  IF s.staged IS NOT NULL AND (first IS NULL
    OR (sprag.arrival_of(s.staged), (s.staged ->> 'ticket')::bigint)
      < (sprag.arrival_of(first), (first ->> 'ticket')::bigint)) THEN
    RETURN s.staged;
  END IF;
  RETURN first;
END $$;

CREATE FUNCTION sprag.grant(INOUT s sprag.step, wait jsonb) LANGUAGE plpgsql AS $$
DECLARE
  hold jsonb;
  forced boolean := (wait ->> 'priority')::int = 127;
BEGIN
  -- A promised fence is good as long as it is the last one: an upgrade may have had another. Where
  -- somebody waits nothing is bare, so nobody has drawn a later one for this lock.
  IF NOT coalesce(s.heir_lease = wait ->> 'lease' AND s.heir_fence = s.fence
    AND s.fence > sprag.forgotten(), false) THEN
    IF s.holders = '[]' THEN
      -- Of an advisory lock there may have been others since, who left nothing here.
      s.fence := greatest(s.fence, sprag.last_number());
    END IF;
    IF wait -> 'mode' = '"exclusive"' OR sprag.permits_of(wait -> 'mode') > 0
      OR s.fence <= sprag.forgotten() THEN
      s := sprag.next_fence(s);
    END IF;
  END IF;
  IF s.exhausted THEN
    RETURN;
  ELSIF s.heir_lease = wait ->> 'lease' THEN
    s.inherits := s.heir_lease;
  END IF;
  s := sprag.remove_wait(s, wait);
  hold := (wait - ARRAY['arrived_ms', 'priority', 'ticket'])
    || jsonb_build_object('fence', s.fence, 'renewed_ms', s.now_ms);
  IF s.thief = wait ->> 'lease' THEN
    hold := hold || '{"took_over": true}';
  END IF;
  s.events := s.events || sprag.event('"granted"', hold,
    CASE WHEN forced THEN 0 ELSE s.now_ms - (wait ->> 'arrived_ms')::bigint END);
  s.holders := s.holders || hold;
  s.changed := true;
  s := sprag.wake(s, s.woken_at, wait ->> 'lease', s.fence);
END $$;

CREATE FUNCTION sprag.grant_upgrade(INOUT s sprag.step, hold jsonb) LANGUAGE plpgsql AS $$
BEGIN
  s := sprag.next_fence(s);
  IF s.exhausted THEN
    RETURN;
  END IF;
  hold := (hold - 'upgrading') || jsonb_build_object('mode', 'exclusive', 'fence', s.fence);
  s.holders := sprag.with_hold(s.holders, hold);
  s.events := s.events || sprag.event('"granted"', hold, 0);
  s.changed := true;
  s := sprag.wake(s, s.upgrader, hold ->> 'lease', s.fence);
  s.upgrader := NULL;
END $$;

-- Grants the pending upgrade, else the waiters from the front, until one has to wait on.
CREATE FUNCTION sprag.promote(INOUT s sprag.step) LANGUAGE plpgsql AS $$
DECLARE
  upgrading jsonb;
  next jsonb;
BEGIN
  LOOP
    upgrading := jsonb_path_query_first(s.holders, '$[*] ? (@.upgrading == true)');
    IF upgrading IS NOT NULL THEN
      EXIT WHEN jsonb_array_length(s.holders) > 1;
      s := sprag.grant_upgrade(s, upgrading);
    ELSE
      EXIT WHEN s.holders @> '[{"mode": "exclusive"}]';
      next := sprag.head(s);
      EXIT WHEN next IS NULL OR NOT sprag.has_room_for(s, next -> 'mode');
      s := sprag.grant(s, next);
    END IF;
    EXIT WHEN s.exhausted;
  END LOOP;
END $$;
