-- What people look at: records, the trail, and the server itself.

CREATE FUNCTION sprag.claim_v1(ns text, kind text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO sprag.namespace VALUES (ns, kind) ON CONFLICT DO NOTHING;
  RETURN (SELECT n.mode FROM sprag.namespace AS n WHERE n.space = ns);
END $$;

-- The record of a lock as people see it. One that cannot be read is told as that, and costs no other.
CREATE FUNCTION sprag.seen(l sprag.lock) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT sprag.is_sound(l) THEN
    RETURN jsonb_build_object('now_us', sprag.now_us(), 'fence', greatest(l.fence, l.heir_fence),
      'damaged', true);
  END IF;
  RETURN jsonb_build_object('now_us', sprag.now_us(), 'fence', greatest(l.fence, l.heir_fence),
    'limit', l.permits, 'holders', (sprag.whole(l)).holders,
    'heir', CASE WHEN l.heir_lease IS NOT NULL THEN
      jsonb_build_object('lease', l.heir_lease, 'fence', l.heir_fence) END,
    'waiters', coalesce((SELECT jsonb_agg(w.request ORDER BY w.arrival, w.ticket)
      FROM sprag.waiter AS w WHERE w.space = l.space AND w.name = l.name), '[]'));
END $$;

-- One lock; no row if it was never used.
CREATE FUNCTION sprag.look_v1(ns text, lock text) RETURNS TABLE (its_name text, record text)
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT l.name, sprag.seen(l) FROM sprag.lock AS l WHERE l.space = ns AND l.name = lock;
END $$;

-- The locks that somebody holds or waits for, in the order of their names: of a namespace, after a name,
-- with a prefix, so many.
CREATE FUNCTION sprag.list_v1(ns text, after text, prefix text, most bigint)
RETURNS TABLE (its_name text, record text) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT l.name, sprag.seen(l) FROM sprag.lock AS l
    WHERE l.space = ns AND l.name > after AND l.name >= prefix AND starts_with(l.name, prefix)
      AND (l.plain_lease IS NOT NULL OR l.holders <> '[]' OR l.waiting > 0)
    ORDER BY l.name LIMIT most;
END $$;

-- What an entry of the trail tells; nothing if it cannot be read.
CREATE FUNCTION sprag.told_by(t sprag.trail) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN sprag.event_of(t);
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $$;

-- The newest entries of a lock, or of all, newest first.
CREATE FUNCTION sprag.newest_v1(ns text, lock text, most bigint) RETURNS TABLE (number bigint,
  its_name text, its_ms bigint, its_event text, noted text) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT t.sequence, t.name, t.at_ms, sprag.told_by(t), t.entry::text
    FROM sprag.trail AS t WHERE t.space = ns AND (lock IS NULL OR t.name = lock)
    ORDER BY t.sequence DESC LIMIT most;
END $$;

-- The entries after one that was seen, oldest first. Numbers are given out before they are written for
-- good, so behind one that is missing nothing is told: it may come, unless it has had time to. Those
-- before the last 10,000 are on their way out, and some of them are gone.
CREATE FUNCTION sprag.next_v1(ns text, lock text, most bigint, after bigint) RETURNS TABLE (
  number bigint, its_name text, its_ms bigint, its_event text, noted text) LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT t.sequence, t.name, t.at_ms, sprag.told_by(t), t.entry::text
    FROM sprag.trail AS t WHERE t.space = ns AND (lock IS NULL OR t.name = lock)
      AND t.sequence > after
      AND t.sequence > (SELECT max(m.sequence) - 10000 FROM sprag.trail AS m)
      AND t.sequence < coalesce((SELECT min(h.sequence) FROM sprag.trail AS h
        WHERE h.sequence > greatest(after, (SELECT min(o.sequence) FROM sprag.trail AS o
            WHERE o.sequence > (SELECT max(m.sequence) - 10000 FROM sprag.trail AS m)))
          AND h.at_ms > sprag.now_us() / 1000 - 5000
          AND NOT EXISTS (SELECT FROM sprag.trail AS p WHERE p.sequence = h.sequence - 1)),
        9223372036854775807)
    ORDER BY t.sequence LIMIT most;
END $$;

-- Whether the disk is waited for; who has copies: all standbys, and those that are waited for; and
-- whether this user may do anything.
CREATE FUNCTION sprag.settings_v1(OUT fsync boolean, OUT standbys bigint[], OUT superuser boolean)
LANGUAGE plpgsql AS $$
BEGIN
  fsync := current_setting('fsync')::boolean;
  SELECT ARRAY[count(*), count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum'))] INTO standbys
    FROM pg_stat_replication AS r;
  SELECT r.rolsuper INTO superuser FROM pg_roles AS r WHERE r.rolname = current_user;
END $$;

-- How many more connections the server takes of a user like this one, and how many of all at most. What
-- is reserved for others does not count.
CREATE FUNCTION sprag.room_v1(OUT fits bigint, OUT most bigint) LANGUAGE plpgsql AS $$
BEGIN
  most := current_setting('max_connections')::bigint
    - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true), '0')::bigint;
  -- The limits of the server, of the database, and of the user.
  SELECT greatest(least(most - count(*),
      CASE WHEN min(d.datconnlimit) >= 0
        THEN min(d.datconnlimit) - count(*) FILTER (WHERE a.datid = d.oid) END,
      CASE WHEN min(r.rolconnlimit) >= 0
        THEN min(r.rolconnlimit) - count(*) FILTER (WHERE a.usesysid = r.oid) END), 0) INTO fits
    FROM pg_stat_activity AS a, pg_database AS d, pg_roles AS r
    WHERE a.datid IS NOT NULL AND d.datname = current_database() AND r.rolname = current_user;
END $$;

-- What is kept here, for all namespaces: how many locks there are and how many of them are free, for how many
-- seconds the longest, how many entries the trail has, and the bytes of it all. Of very many locks the first
-- are counted.
CREATE FUNCTION sprag.stored_v1(OUT locks bigint, OUT free bigint, OUT oldest_s bigint, OUT entries bigint,
  OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT count(*), count(*) FILTER (WHERE k.is_free),
      coalesce((sprag.now_us() - min(k.since_us) FILTER (WHERE k.is_free)) / 1000000, 0)
    INTO locks, free, oldest_s
    FROM (SELECT l.plain_lease IS NULL AND l.holders = '[]' AND l.waiting = 0 AS is_free,
        greatest(l.used_us, l.plain_us) AS since_us FROM sprag.lock AS l LIMIT 1000000) AS k;
  SELECT count(*) INTO entries FROM sprag.trail AS t;
  SELECT sum(pg_total_relation_size(c.oid)) INTO bytes FROM pg_class AS c
    WHERE c.relnamespace = 'sprag'::regnamespace AND c.relkind = 'r';
END $$;
