-- What nobody needs any more is swept away, a little at a time: with each name that is new, and by each
-- process now and then.

-- How far the sweep through the locks has come, in the order of their names. A crash empties it.
CREATE UNLOGGED TABLE sprag.swept (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  one boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- The record of a lock that is free is kept for a while, as it tells what became of its last leases. Its fence
-- is not needed: the namespace remembers the largest of those that are gone.
CREATE FUNCTION sprag.keeps_us() RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN 900000000;

-- Removes the record of a lock that nobody has used for so long, unless somebody has it in hand. Its fence,
-- which has to become a floor for those of all locks that come; null if it stays.
CREATE FUNCTION sprag.clear(ns text, lock text, before_us bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  its_fence bigint;
BEGIN
  PERFORM FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
    AND k.plain_lease IS NULL AND k.holders = '[]' AND k.waiting = 0
    AND greatest(k.used_us, k.plain_us) < before_us FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    DELETE FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock RETURNING k.fence INTO its_fence;
  END IF;
  RETURN its_fence;
END $$;

CREATE FUNCTION sprag.raise_floor(ns text, fence bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE sprag.namespace AS n SET floor = fence WHERE n.space = ns AND n.floor < fence;
END $$;

-- Whether all who have a lock, or wait for it, have been over for so long.
CREATE FUNCTION sprag.is_abandoned(l sprag.lock, before_ms bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT EXISTS (SELECT FROM jsonb_array_elements((sprag.whole(l)).holders) AS all_of(one)
      WHERE sprag.expires_of(one) > before_ms)
    AND (l.waiting = 0 OR NOT EXISTS (SELECT FROM sprag.waiter AS w
      WHERE w.space = l.space AND w.name = l.name AND w.expires_ms > before_ms));
EXCEPTION WHEN data_exception THEN
  RETURN false;
END $$;

-- Looks at the next few locks, and begins anew behind the last one; one session at a time. Those of dead
-- processes that nobody has asked for since are ended first, if `ends`. How many it has cleared away.
CREATE FUNCTION sprag.sweep(most int, ends boolean, age_us bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  at sprag.swept;
  l sprag.lock;
  us bigint := sprag.now_us();
  kind text := CASE WHEN coalesce(current_setting('sprag.session', true), '') = ''
    THEN 'lease' ELSE 'advisory' END;
  looked int := 0;
  cleared bigint := 0;
  its_fence bigint;
  -- Of those that were cleared away in the namespace at hand.
  largest bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1936749158, 0) THEN
    RETURN 0;
  END IF;
  SELECT * INTO at FROM sprag.swept;
  at.space := coalesce(at.space, '');
  at.name := coalesce(at.name, '');
  FOR l IN
    SELECT * FROM sprag.lock AS k WHERE (k.space, k.name) > (at.space, at.name)
      ORDER BY k.space, k.name LIMIT most
  LOOP
    looked := looked + 1;
    IF l.space <> at.space AND largest > 0 THEN
      PERFORM sprag.raise_floor(at.space, largest);
      largest := 0;
    END IF;
    at.space := l.space;
    at.name := l.name;
    CONTINUE WHEN greatest(l.used_us, l.plain_us) >= us - age_us;
    IF l.plain_lease IS NULL AND l.holders = '[]' AND l.waiting = 0 THEN
      its_fence := sprag.clear(l.space, l.name, us - age_us);
      IF its_fence IS NOT NULL THEN
        cleared := cleared + 1;
        largest := greatest(largest, its_fence);
      END IF;
    ELSIF ends AND sprag.is_abandoned(l, (us - age_us) / 1000)
      AND kind = (SELECT n.mode FROM sprag.namespace AS n WHERE n.space = l.space) THEN
      PERFORM sprag.reap_soon(l.space, l.name);
    END IF;
  END LOOP;
  IF largest > 0 THEN
    PERFORM sprag.raise_floor(at.space, largest);
  END IF;
  IF looked < most THEN
    at.space := '';
    at.name := '';
  END IF;
  INSERT INTO sprag.swept VALUES (at.space, at.name)
    ON CONFLICT (one) DO UPDATE SET space = excluded.space, name = excluded.name;
  RETURN cleared;
END $$;

-- The trail has its last 10,000 entries. The few that are too many by now; where that is a lot, because
-- something was in the way, a thousand.
CREATE FUNCTION sprag.forget_trail(last bigint, most int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM sprag.trail WHERE sequence IN (
    SELECT t.sequence FROM sprag.trail AS t WHERE t.sequence <= last - 10000
      AND (most > 100 OR t.sequence > last - 10100)
      ORDER BY t.sequence LIMIT most FOR UPDATE SKIP LOCKED);
END $$;

-- What each process does now and then, beside its requests. Whether there may be more to do.
CREATE FUNCTION sprag.tidy_v1() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  cleared bigint := sprag.sweep(100, true, sprag.keeps_us());
BEGIN
  PERFORM sprag.forget_trail((SELECT max(t.sequence) FROM sprag.trail AS t), 1000);
  -- Somebody who waited may have been let in.
  PERFORM sprag.durable(true);
  RETURN cleared >= 50;
END $$;
