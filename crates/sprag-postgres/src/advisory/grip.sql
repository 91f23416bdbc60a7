-- Advisory locks: what the record of a lock grants counts only together with the session lock on the
-- lock's key. A grip is a session lock that is held for a lease.

-- A crash of the server forgets grips, and session locks too.
CREATE UNLOGGED TABLE sprag.grip (
  lease text COLLATE "C" PRIMARY KEY,
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  key bigint NOT NULL,
  shared boolean NOT NULL,
  pid int NOT NULL,
  session text COLLATE "C" NOT NULL,
  -- Since when its session is asked to let go of it.
  asked_ms bigint
) WITH (fillfactor = 70);
CREATE INDEX grip_key ON sprag.grip (key);
CREATE INDEX grip_session ON sprag.grip (session);

-- Since when the server has not crashed; a crash empties this too. Those who held a lock then may be
-- out of reach and not know, and what was written last is forgotten: so nobody gets a lock in the time
-- in which they notice, and fences from before do not count.
CREATE UNLOGGED TABLE sprag.era (
  since_us bigint NOT NULL,
  one boolean PRIMARY KEY DEFAULT true CHECK (one)
);
INSERT INTO sprag.era VALUES (0);

CREATE FUNCTION sprag.is_quiet() RETURNS boolean LANGUAGE sql VOLATILE
RETURN sprag.now_us() < current_setting('sprag.quiet_until')::bigint;

-- Whether a session is over. After a restart of the server all are; but those who held a lock may be
-- out of reach, and are given the time in which they notice.
CREATE FUNCTION sprag.is_over(session text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN session <> current_setting('sprag.session')
    AND clock_timestamp() > pg_postmaster_start_time() + interval '6 s'
    AND pg_try_advisory_xact_lock(1936749156, hashtext(session));
END $$;

-- Takes out the holders and waiters whose sessions are over. Who asks for a lease that another session
-- has was cut off from that one, and has given it up.
CREATE FUNCTION sprag.bury_sessions(ns text, lock text, asked text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  s sprag.step;
  over text[];
  losses jsonb;
  wait jsonb;
  mine text := current_setting('sprag.session');
  given_up text;
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock;
  l := sprag.whole(l);
  IF l.space IS NULL OR (l.holders = '[]' AND l.waiting = 0) THEN
    RETURN;
  END IF;
  -- Mostly there is nobody to ask about.
  IF l.waiting > 0 THEN
    SELECT w.request INTO wait FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
      ORDER BY w.arrival, w.ticket LIMIT 1;
  END IF;
  IF (l.holders = '[]' OR (jsonb_array_length(l.holders) = 1
      AND l.holders -> 0 ->> 'session' = mine))
    AND (wait IS NULL OR wait ->> 'session' = mine) THEN
    RETURN;
  END IF;
  given_up := nullif(sprag.hold_of(l.holders, asked) ->> 'session', mine);
  -- Who has the lock and who is next matter; the others only if there is something to do anyway.
  SELECT array_agg(session) INTO over FROM (
    SELECT one ->> 'session' AS session FROM jsonb_array_elements(l.holders) AS all_of(one)
    UNION (SELECT w.request ->> 'session' FROM sprag.waiter AS w
      WHERE l.waiting > 0 AND w.space = ns AND w.name = lock
      ORDER BY w.arrival, w.ticket LIMIT 1)) AS seen
    WHERE sprag.is_over(session) OR session = given_up;
  IF over IS NULL THEN
    RETURN;
  END IF;
  SELECT over || coalesce(array_agg(session), '{}') INTO over FROM (
    SELECT DISTINCT w.request ->> 'session' AS session FROM sprag.waiter AS w
      WHERE w.space = ns AND w.name = lock) AS seen
    WHERE sprag.is_over(session);
  s := sprag.begin_step(ns, lock, NULL, false);
  s := sprag.reap(s);
  SELECT jsonb_agg(CASE WHEN one ->> 'session' = ANY(over) THEN '"session_died"'::jsonb END
      ORDER BY place) INTO losses
    FROM jsonb_array_elements(s.holders) WITH ORDINALITY AS all_of(one, place);
  IF losses @> '["session_died"]' THEN
    s := sprag.remove_holders(s, losses);
  END IF;
  s := sprag.drop_crowd(s, over);
  FOR wait IN
    SELECT w.request FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock
      AND w.request ->> 'session' = ANY(over) ORDER BY w.arrival, w.ticket
  LOOP
    -- Its process may have a new session, and then it may ask again.
    s := sprag.bury_wait(s, wait, '"state_lost"');
  END LOOP;
  s := sprag.promote(s);
  PERFORM sprag.end_step(s, false);
  -- One that is only given up may still have its key, and is asked to let go of it.
  DELETE FROM sprag.grip AS g WHERE g.space = ns AND g.name = lock AND g.session = ANY(over)
    AND (given_up IS NULL OR g.session <> given_up OR sprag.is_over(g.session));
END $$;

-- The same, for who only looks: a record that cannot be read stays as it is.
CREATE FUNCTION sprag.bury_sessions_if_sound(ns text, lock text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sprag.bury_sessions(ns, lock, NULL);
EXCEPTION WHEN data_exception THEN
  RAISE LOG 'sprag: the record of the lock % in the namespace % cannot be read: %', lock, ns, SQLERRM;
END $$;

-- The same for all locks of a namespace that such a session has.
CREATE FUNCTION sprag.bury_all_sessions_v1(ns text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  over text[];
BEGIN
  SELECT array_agg(session) INTO over FROM (
    SELECT g.session FROM sprag.grip AS g WHERE g.space = ns
    UNION SELECT k.plain_session FROM sprag.lock AS k WHERE k.space = ns
      AND k.plain_lease IS NOT NULL AND k.plain_session IS NOT NULL) AS seen
    WHERE sprag.is_over(session);
  -- In the order of their names, as in `renew_v1`, so that nobody waits for each other.
  PERFORM sprag.bury_sessions_if_sound(ns, held.name) FROM (
    SELECT g.name FROM sprag.grip AS g WHERE g.space = ns AND g.session = ANY(over)
    UNION SELECT k.name FROM sprag.lock AS k WHERE k.space = ns AND k.plain_lease IS NOT NULL
      AND k.plain_session = ANY(over) ORDER BY 1) AS held;
END $$;

-- The session of this connection, and that it lives: a lock in the space of two numbers, where no
-- lock with a name is. Shared, so that a session with an equal hash may live too.
CREATE FUNCTION sprag.begin_session_v1(session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('sprag.session', session, false), set_config('sprag.bare', '', false),
    set_config('sprag.wanted', '', false), set_config('sprag.calm', session, false),
    set_config('sprag.ended', '', false), set_config('sprag.seen', '', false);
  -- Its locks end with the server: nothing of it has to be on the disk.
  PERFORM set_config('synchronous_commit', 'off', false);
  PERFORM pg_advisory_lock_shared(1936749156, hashtext(session));
  PERFORM sprag.raise_fences();
  -- No session outlives a crash, so this is true for as long as it lives.
  PERFORM set_config('sprag.forgotten', e.since_us::text, false),
    set_config('sprag.quiet_until', (e.since_us + 6000000)::text, false) FROM sprag.era AS e;
END $$;

-- Whether the record still grants what the grip is for. One that cannot be read takes nothing away.
CREATE FUNCTION sprag.is_due(g sprag.grip, ms bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM sprag.lock AS k, jsonb_array_elements(k.holders) AS all_of(one)
    WHERE k.space = g.space AND k.name = g.name AND one ->> 'lease' = g.lease
      AND sprag.expires_of(one) > ms);
EXCEPTION WHEN data_exception THEN
  RETURN true;
END $$;

CREATE FUNCTION sprag.let_go(asked text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g sprag.grip;
BEGIN
  DELETE FROM sprag.grip AS e
    WHERE e.lease = asked AND e.session = current_setting('sprag.session') RETURNING * INTO g;
  IF g.shared THEN
    PERFORM pg_advisory_unlock_shared(g.key);
  ELSIF NOT g.shared THEN
    PERFORM pg_advisory_unlock(g.key);
  END IF;
END $$;

-- Takes out who is in the record of a lock although its time is over; later, if somebody keeps the row
-- or it cannot be read.
CREATE FUNCTION sprag.reap_soon(ns text, lock text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    PERFORM sprag.run(ns, lock, '{"do": "reap"}', NULL);
  END IF;
EXCEPTION WHEN data_exception THEN
  RAISE LOG 'sprag: the record of the lock % in the namespace % cannot be read: %', lock, ns, SQLERRM;
END $$;

-- Lets go of all that this session has no right to any more, and shows that it lives. The client
-- names the locks whose time is over. They are taken in the order in which everybody takes several,
-- rows by name and grips by lease: else two could wait for each other. No row is waited for, as the
-- session is given up without an answer.
CREATE FUNCTION sprag.let_go_v1(ns text, overdue text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g sprag.grip;
  ms bigint := sprag.now_us() / 1000;
BEGIN
  PERFORM sprag.reap_soon(ns, named.name)
    FROM (SELECT DISTINCT one COLLATE "C" AS name FROM unnest(overdue) AS all_of(one) ORDER BY 1)
      AS named;
  FOR g IN SELECT * FROM sprag.grip AS e
    WHERE e.session = current_setting('sprag.session') AND NOT sprag.is_due(e, ms)
    ORDER BY e.lease
  LOOP
    PERFORM sprag.let_go(g.lease);
    -- Who was granted the lock meanwhile waits for this.
    PERFORM pg_notify('sprag_' || (one ->> 'session'), (one ->> 'lease') || ':0')
      FROM sprag.lock AS k, jsonb_array_elements(k.holders) AS all_of(one)
      WHERE k.space = g.space AND k.name = g.name
        AND NOT EXISTS (SELECT FROM sprag.grip AS e WHERE e.lease = one ->> 'lease');
  END LOOP;
END $$;

-- Whether a process of the server has a key. One that has another's number by now has not.
CREATE FUNCTION sprag.has_key(its_pid int, lock_key bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = its_pid
    AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    AND (l.classid::bigint << 32 | l.objid::bigint) = lock_key);
END $$;

-- Asks the sessions that have a key without right to let go of it; who does not for so long is
-- disconnected. The number of those, and who of them this user may not disconnect.
CREATE FUNCTION sprag.urge_v1(lock_key bigint, patience_ms bigint, OUT left_over bigint,
  OUT spared text) LANGUAGE plpgsql AS $$
DECLARE
  g sprag.grip;
  ms bigint := sprag.now_us() / 1000;
BEGIN
  left_over := 0;
  FOR g IN
    SELECT * FROM sprag.grip AS e WHERE e.key = lock_key AND NOT sprag.is_due(e, ms)
      AND e.session <> current_setting('sprag.session') ORDER BY e.lease FOR UPDATE
  LOOP
    IF sprag.is_over(g.session) THEN
      DELETE FROM sprag.grip AS e WHERE e.lease = g.lease;
    ELSE
      left_over := left_over + 1;
      IF g.asked_ms IS NULL THEN
        UPDATE sprag.grip AS e SET asked_ms = ms WHERE e.lease = g.lease;
        PERFORM pg_notify('sprag_' || g.session, 'let go');
      ELSIF g.asked_ms + patience_ms <= ms AND sprag.has_key(g.pid, lock_key) THEN
        BEGIN
          PERFORM pg_terminate_backend(g.pid);
        EXCEPTION WHEN insufficient_privilege THEN
          spared := format('its last holder, pid %s, which does not let go and which this user may '
            'not disconnect: let an administrator type GRANT pg_signal_backend TO %I, or end it',
            g.pid, current_user);
        END;
      END IF;
    END IF;
  END LOOP;
END $$;

-- Takes the session lock for a lease, or another kind of it.
CREATE FUNCTION sprag.is_plain(ns text, lock text, asked text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock
    AND k.plain_lease = asked AND k.plain_session = current_setting('sprag.session'));
END $$;

CREATE FUNCTION sprag.take_grip(ns text, lock text, asked text, lock_key bigint, mode jsonb)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  g sprag.grip;
  wanted boolean := mode <> '"exclusive"';
  taken boolean;
BEGIN
  SELECT * INTO g FROM sprag.grip AS e
    WHERE e.lease = asked AND e.session = current_setting('sprag.session');
  IF g.shared = wanted OR (NOT wanted AND sprag.is_plain(ns, lock, asked)) THEN
    RETURN true;
  ELSIF sprag.is_quiet() THEN
    RETURN false;
  ELSIF wanted THEN
    taken := pg_try_advisory_lock_shared(lock_key);
  ELSE
    taken := pg_try_advisory_lock(lock_key);
  END IF;
  IF NOT taken THEN
    RETURN false;
  ELSIF g.shared THEN
    PERFORM pg_advisory_unlock_shared(lock_key);
  ELSIF NOT g.shared THEN
    PERFORM pg_advisory_unlock(lock_key);
  END IF;
  INSERT INTO sprag.grip VALUES (asked, ns, lock, lock_key, wanted, pg_backend_pid(),
    current_setting('sprag.session'))
    ON CONFLICT (lease) DO UPDATE SET shared = wanted, pid = excluded.pid,
      session = excluded.session, asked_ms = NULL;
  RETURN true;
END $$;

-- Who has the key although the record does not say so: another name with the same key, or a program
-- that does not know us. A session of ours that asks for a lock has its key for a moment, shared, until its
-- statement is over: that one is nobody to wait for.
CREATE FUNCTION sprag.outsider(ns text, lock text, lock_key bigint) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  who text;
BEGIN
  SELECT format('the lock %s of the namespace %s, which has the same key', to_json(g.name),
      to_json(g.space)) INTO who
    FROM (SELECT e.space, e.name FROM sprag.grip AS e WHERE e.key = lock_key
      UNION ALL SELECT k.space, k.name FROM sprag.lock AS k
        WHERE k.key = lock_key AND k.plain_lease IS NOT NULL) AS g
    WHERE (g.space, g.name) <> (ns, lock) LIMIT 1;
  IF who IS NULL THEN
    SELECT format('pid %s, %s', l.pid,
        coalesce(nullif(a.application_name, ''), 'a program without a name')) INTO who
      FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
      WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND (l.classid::bigint << 32 | l.objid::bigint) = lock_key
        AND NOT EXISTS (SELECT FROM sprag.grip AS g WHERE g.key = lock_key AND g.pid = l.pid)
        AND NOT EXISTS (SELECT FROM sprag.lock AS k WHERE k.key = lock_key
          AND k.plain_lease IS NOT NULL AND k.plain_pid = l.pid)
        AND NOT (l.mode = 'ShareLock' AND EXISTS (SELECT FROM sprag.session AS s
          WHERE s.pid = l.pid AND s.life_us = sprag.life_us()))
      LIMIT 1;
  END IF;
  RETURN who;
END $$;

-- How often this session has a right to a key; see bare.sql for those that are not written.
CREATE FUNCTION sprag.rights_to(its_key bigint, is_shared boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(*) FROM sprag.grip AS g WHERE g.key = its_key
      AND g.session = current_setting('sprag.session') AND g.shared = is_shared)
    + (SELECT count(*) FROM sprag.lock AS k WHERE NOT is_shared AND k.key = its_key
      AND k.plain_lease IS NOT NULL AND k.plain_session = current_setting('sprag.session'))
    + CASE WHEN is_shared THEN 0 ELSE sprag.noted(its_key) END;
END $$;

-- After a statement that failed half-way: lets go of what no grip is for. A session may have a key
-- several times over; how often it has is not told, so of the keys that the statement was about it
-- gives back all and takes again what it has a right to, while its transaction has the key as well.
CREATE FUNCTION sprag.sweep_v1(touched bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  held record;
  rights bigint;
BEGIN
  PERFORM set_config('client_min_messages', 'error', true);
  FOR held IN
    SELECT p.mode = 'ShareLock' AS shared, p.classid::bigint << 32 | p.objid::bigint AS key
      FROM pg_locks AS p WHERE p.pid = pg_backend_pid() AND p.locktype = 'advisory' AND p.objsubid = 1
  LOOP
    rights := sprag.rights_to(held.key, held.shared);
    CONTINUE WHEN rights > 0 AND NOT held.key = ANY (coalesce(touched, '{}'));
    IF held.shared THEN
      PERFORM pg_advisory_xact_lock_shared(held.key);
      WHILE pg_advisory_unlock_shared(held.key) LOOP END LOOP;
      PERFORM pg_advisory_lock_shared(held.key) FROM generate_series(1, rights);
    ELSE
      PERFORM pg_advisory_xact_lock(held.key);
      WHILE pg_advisory_unlock(held.key) LOOP END LOOP;
      PERFORM pg_advisory_lock(held.key) FROM generate_series(1, rights);
    END IF;
  END LOOP;
  -- Nothing else is locked for this, as the server's table of locks may be full.
  PERFORM sprag.forget_note(line) FROM sprag.notes() AS line
    WHERE NOT EXISTS (SELECT FROM pg_locks AS p WHERE p.pid = pg_backend_pid()
      AND p.locktype = 'advisory' AND p.objsubid = 1
      AND (p.classid::bigint << 32 | p.objid::bigint) = split_part(line, E'\t', 2)::bigint);
END $$;

-- For people: who has which session lock.
CREATE VIEW sprag.grips AS
  SELECT g.space, g.name, g.key, g.shared, g.pid FROM sprag.grip AS g
  UNION ALL SELECT k.space, k.name, k.key, false, k.plain_pid FROM sprag.lock AS k
    WHERE k.plain_lease IS NOT NULL AND k.plain_pid IS NOT NULL;
