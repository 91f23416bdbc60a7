-- Bare locks: an advisory lock that is held for a moment is taken and given back without writing
-- anything. Its session has the key, and a note of its own that only it can read; the record of the
-- lock is empty, or there is none.
--
-- * **Nobody else is let in.** Every grant, bare or written, exclusive or shared, needs the session
--   lock on the key. Who has the key alone, and sees after that that the record is empty, is alone: who
--   is in a record without having the key yet was written there while the record showed somebody.
-- * **Session locks count**: a session may have one twice. So whatever else a session does with a key
--   it writes down first what its note has of it (`settle`), in the same statement. Statements of a
--   session come one after the other, whoever of the process sends them, and the note is the
--   session's: no two tasks of a process are let in, and nobody frees what another has.
-- * **A statement that fails** takes back what it has done to the note, but not what it has done to the
--   key. One that took it is swept up, as it is not noted. One that freed it leaves a note of what is
--   not held any more, which nobody believes to have: it was being released.
-- * **Fences** of bare locks are nowhere written, so all of advisory locks come from a sequence, which
--   no rollback and no clock turns back. One is drawn while the session has the key, or while the
--   record shows somebody: nobody else can have drawn a later one for that lock before it counts. Who is
--   granted a lock whose last holder has yet to let go of the key keeps that one's grip until then,
--   and where there is a grip nothing is bare.
-- * **Others who want it** ask the session to write it down, and ask again. From then on, for a while,
--   it is taken the written way: so there is a queue, and nobody starves behind who takes it over and
--   over again.
-- * **A holder that hangs** never writes it down. Its guards are lost 5.5 s after the last beat of its
--   pulse that was answered. A beat takes back the question: if that is 6.5 s old, there was none
--   since, and the session may be ended. So no lock with a shorter time than that is bare.
-- * **Where nothing was written** since a session saw the record empty, it need not look again, nor at
--   anything else. See again.sql.
-- * **A restart of the server** forgets the notes, while who held a lock may be out of reach and not
--   know. If there were sessions before it, nobody gets a lock for as long as they need to notice.

CREATE SEQUENCE sprag.fences;

-- Who may have bare locks, of which life of the server.
CREATE UNLOGGED TABLE sprag.session (
  session text COLLATE "C" PRIMARY KEY,
  space text COLLATE "C" NOT NULL,
  pid int NOT NULL,
  life_us bigint NOT NULL,
  -- Since when it is asked to write down what it has.
  asked_ms bigint
) WITH (fillfactor = 50);
CREATE INDEX session_pid ON sprag.session (pid);

CREATE FUNCTION sprag.life_us() RETURNS bigint LANGUAGE sql STABLE
RETURN (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint;

-- Fences are not behind the clock when a session begins: after a crash, or on a server that was made
-- from an older one, nothing else is known about those that were given out; nor behind those of rows
-- that were cleared away. Only one at a time raises them, and only where they are a second behind: others
-- would have to draw a million of them between the two statements to be overtaken. After a crash, before
-- anybody draws, they are raised in any case: by more than can be forgotten.
--
-- With the rights of the owner: who is let in must not set the sequence, nor say when there was a crash.
-- So it takes no argument, and however often it is called fences stay where the clock is.
CREATE FUNCTION sprag.raise_fences() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  last bigint;
  least bigint;
  crashed boolean;
BEGIN
  PERFORM set_config('lock_timeout', '2s', true);
  -- Whoever else begins waits for this.
  INSERT INTO sprag.era VALUES (sprag.now_us()) ON CONFLICT DO NOTHING;
  crashed := FOUND;
  PERFORM pg_advisory_xact_lock(1936749157, 0);
  SELECT f.last_value INTO last FROM sprag.fences AS f;
  SELECT greatest(sprag.now_us(), max(n.floor) + 1000000, last + CASE WHEN crashed THEN 1000000 ELSE 0 END)
    INTO least FROM sprag.namespace AS n WHERE n.mode = 'advisory';
  IF last <= least - 1000000 THEN
    PERFORM setval('sprag.fences', least);
  END IF;
END $$;

-- The last number that was drawn, by whomever; null where fences are of the clock.
CREATE FUNCTION sprag.last_number() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(current_setting('sprag.session', true), '') = '' THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT f.last_value FROM sprag.fences AS f);
END $$;

-- The number behind which the next fence is; of leases, the time.
CREATE FUNCTION sprag.draw(us bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(current_setting('sprag.session', true), '') = '' THEN
    RETURN us;
  END IF;
  RETURN nextval('sprag.fences');
END $$;

-- From now on this session, which has begun, may have locks. The last one of its process, which has
-- given it up, need not be waited for.
CREATE FUNCTION sprag.enter_v1(ns text, last text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    PERFORM pg_terminate_backend(s.pid) FROM sprag.session AS s
      WHERE s.session = last AND s.life_us = sprag.life_us() AND NOT sprag.is_over(s.session);
  EXCEPTION WHEN insufficient_privilege THEN
    NULL;
  END;
  IF EXISTS (SELECT FROM sprag.session AS s WHERE s.life_us <> sprag.life_us()) THEN
    -- They had locks before the restart.
    IF sprag.now_us() < sprag.life_us() + 6000000 THEN
      PERFORM set_config('sprag.quiet_until', greatest(sprag.life_us() + 6000000,
        current_setting('sprag.quiet_until')::bigint)::text, false);
    ELSE
      DELETE FROM sprag.session AS s WHERE s.session IN (SELECT e.session FROM sprag.session AS e
        WHERE e.life_us <> sprag.life_us() ORDER BY e.session FOR UPDATE SKIP LOCKED);
    END IF;
  END IF;
  DELETE FROM sprag.session AS s WHERE s.session IN (SELECT e.session FROM sprag.session AS e
    WHERE e.life_us = sprag.life_us() AND sprag.is_over(e.session)
    ORDER BY e.session LIMIT 100 FOR UPDATE SKIP LOCKED);
  INSERT INTO sprag.session
    VALUES (current_setting('sprag.session'), ns, pg_backend_pid(), sprag.life_us());
END $$;

-- ---- the note ------------------------------------------------------------------------------

-- A line for each bare lock: lease, key, fence, since when, TTL, namespace, name, command, with tabs
-- between them. None of these has a control character in it: names may not, and JSON does not.
-- The note is a setting of the session, 'sprag.bare'. The last 16 that were given back are in 'sprag.ended',
-- so that who asks twice is told the same.

-- Whose key somebody else wants, or another task of this process: 'sprag.wanted', key and since when.
-- While nobody wants anything, 'sprag.calm' is the session.

CREATE FUNCTION sprag.want(keys bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  us bigint := sprag.now_us();
  line text;
  kept text := '';
BEGIN
  FOREACH line IN ARRAY string_to_array(current_setting('sprag.wanted'), E'\n') LOOP
    IF line <> '' AND split_part(line, E'\t', 2)::bigint > us - 1000000 AND length(kept) < 8192
      AND NOT split_part(line, E'\t', 1)::bigint = ANY (keys) THEN
      kept := kept || line || E'\n';
    END IF;
  END LOOP;
  SELECT kept || coalesce(string_agg(concat(one, E'\t', us, E'\n'), ''), '') INTO kept
    FROM (SELECT DISTINCT unnest(keys) AS one) AS all_of;
  PERFORM set_config('sprag.wanted', kept, false), set_config('sprag.calm',
    CASE WHEN kept = '' THEN current_setting('sprag.session') ELSE '' END, false);
END $$;

CREATE FUNCTION sprag.forget_note(line text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('sprag.bare', replace(current_setting('sprag.bare'), line || E'\n', ''), false);
END $$;

CREATE FUNCTION sprag.notes() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT one
    FROM unnest(string_to_array(coalesce(current_setting('sprag.bare', true), ''), E'\n'))
      AS all_of(one)
    WHERE one <> '';
END $$;

CREATE FUNCTION sprag.noted(lock_key bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(*) FROM sprag.notes() AS line WHERE split_part(line, E'\t', 2) = lock_key::text);
END $$;

-- What is in the note as it would be in the record if it had not been bare.
CREATE FUNCTION sprag.write_down(line text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  part text[] := string_to_array(line, E'\t');
BEGIN
  PERFORM FROM sprag.lock AS k WHERE k.space = part[6] AND k.name = part[7] FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM sprag.make_lock(part[6], part[7]);
  END IF;
  UPDATE sprag.lock AS k
    SET version = k.version + 1, tickets = k.tickets + 1, permits = NULL, fence = part[3]::bigint,
      plain = part[8], plain_lease = part[1], plain_us = part[4]::bigint,
      plain_ttl_ms = part[5]::bigint, key = coalesce(k.key, part[2]::bigint),
      plain_session = current_setting('sprag.session'), plain_pid = pg_backend_pid()
    WHERE k.space = part[6] AND k.name = part[7] AND k.plain_lease IS NULL AND k.holders = '[]'
      AND k.fence < part[3]::bigint;
  IF NOT FOUND THEN
    -- Somebody else is there who has not got the key.
    RAISE lock_not_available USING MESSAGE = format('the lock %s cannot be written down', part[7]);
  END IF;
  PERFORM sprag.tell_visits_v1(ARRAY[E'\t' || line]);
  PERFORM sprag.forget_note(line);
END $$;

-- Before anything else is done with a key: what this session has bare of it is written down. Fails if
-- that cannot be, and with it whatever was to be done.
CREATE FUNCTION sprag.settle(lock_key bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  line text;
BEGIN
  IF position(E'\t' || lock_key || E'\t' IN coalesce(current_setting('sprag.bare', true), '')) = 0 THEN
    RETURN;
  END IF;
  FOR line IN SELECT one FROM sprag.notes() AS one LOOP
    IF split_part(line, E'\t', 2) = lock_key::text THEN
      PERFORM sprag.write_down(line);
    END IF;
  END LOOP;
  PERFORM sprag.want(ARRAY[lock_key]);
END $$;

-- A beat of the pulse: nothing is bare for longer than from one to the next, and nothing that is
-- wanted. What somebody keeps the row of is left for the next one. The question is taken back, or the
-- beat fails and is no sign of life.
CREATE FUNCTION sprag.beat_v1(wanted bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  line text;
BEGIN
  UPDATE sprag.session AS s SET asked_ms = NULL
    WHERE s.session = current_setting('sprag.session') AND s.asked_ms IS NOT NULL;
  IF wanted <> '{}' OR current_setting('sprag.wanted') <> '' THEN
    PERFORM sprag.want(wanted);
  END IF;
  FOR line IN SELECT one FROM sprag.notes() AS one LOOP
    BEGIN
      PERFORM FROM sprag.lock AS k WHERE k.space = split_part(line, E'\t', 6)
        AND k.name = split_part(line, E'\t', 7) FOR UPDATE NOWAIT;
      PERFORM sprag.write_down(line);
    EXCEPTION WHEN OTHERS THEN
      RAISE LOG 'sprag: a lock is not written down: %', SQLERRM;
    END;
  END LOOP;
END $$;

-- ---- the trail -----------------------------------------------------------------------------

-- Into the trail: visits, each as when it left, if it did, a tab, and its line in the note.
CREATE FUNCTION sprag.tell_visits_v1(visits text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  first bigint;
  last bigint;
BEGIN
  WITH written AS (
    INSERT INTO sprag.trail (space, name, at_ms, plain, session, fence, came, after_ms)
      SELECT part[7], part[8], at_ms, part[9], current_setting('sprag.session'), part[4]::bigint, came,
        after_ms
        FROM unnest(visits) WITH ORDINALITY AS all_of(one, place),
          LATERAL (SELECT string_to_array(one, E'\t') AS part) AS parts,
          LATERAL (SELECT part[5]::bigint / 1000 AS since_ms,
            nullif(part[1], '')::bigint / 1000 AS left_ms) AS times,
          LATERAL (VALUES (since_ms, true, 0), (left_ms, false, greatest(left_ms - since_ms, 0)))
            AS both_of(at_ms, came, after_ms)
        WHERE at_ms IS NOT NULL ORDER BY place, came DESC
      RETURNING sequence
  ) SELECT min(sequence), max(sequence) INTO first, last FROM written;
  -- There may be several hundred of them.
  IF last / 32 > (first - 1) / 32 THEN
    PERFORM sprag.forget_trail(last, 1000);
  END IF;
END $$;

-- ---- take and leave ------------------------------------------------------------------------

-- Lets a lease in: bare, or else the written way. Who is let in bare is told the time, the fence and the
-- session, and if the record is remembered, at which number it was seen, and which leases were gone.
CREATE FUNCTION sprag.take_bare_v1(ns text, lock text, command text, asked text, ttl_ms bigint,
  not_after_ms bigint, lock_key bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  note text := current_setting('sprag.bare');
  us bigint := sprag.now_us();
  seen text;
  its_line text := concat(E'\n', lock_key, E'\t', ns, E'\t', lock, E'\t');
  old_fence bigint;
  is_free boolean;
  new_fence bigint;
  done text;
BEGIN
  IF position(asked IN current_setting('sprag.ended')) > 0 THEN
    RETURN sprag.answer(us, '{"gone": "released"}') || jsonb_build_object('session',
      current_setting('sprag.session'), 'outsider', NULL, 'leaving', false);
  ELSIF note <> '' AND position(E'\t' || lock_key || E'\t' IN note) > 0 THEN
    -- Another of this process has it, or this one asks again.
    PERFORM sprag.settle(lock_key);
  ELSIF ttl_ms >= 7000 AND us / 1000 <= not_after_ms
    AND us >= current_setting('sprag.quiet_until')::bigint AND length(note) < 32768
    AND position(lock_key::text IN current_setting('sprag.wanted')) = 0
    AND pg_try_advisory_lock(lock_key) THEN
    -- Each statement sees what was written before it.
    seen := current_setting('sprag.seen');
    is_free := position(its_line IN seen) > 0 AND position(asked IN seen) = 0
      AND starts_with(seen, concat(pg_sequence_last_value('sprag.changes'), ' '));
    IF NOT is_free THEN
      SELECT k.fence, k.plain_lease IS NULL AND k.waiting = 0 AND k.holders = '[]'
          AND position(asked IN k.ended) = 0 AND (k.gone = '[]' OR position(asked IN k.gone::text) = 0)
          AND NOT EXISTS (SELECT FROM sprag.grip AS g WHERE g.key = lock_key)
        INTO old_fence, is_free FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock;
      IF NOT FOUND THEN
        is_free := NOT EXISTS (SELECT FROM sprag.grip AS g WHERE g.key = lock_key);
      END IF;
      IF is_free THEN
        PERFORM sprag.remember(ns, lock, lock_key);
        seen := current_setting('sprag.seen');
      END IF;
    END IF;
    IF is_free THEN
      new_fence := nextval('sprag.fences');
      IF new_fence > coalesce(old_fence, 0) AND new_fence <= 9007199254740991 THEN
        done := set_config('sprag.bare', concat(note, asked, E'\t', lock_key, E'\t', new_fence, E'\t',
          us, E'\t', ttl_ms, E'\t', ns, E'\t', lock, E'\t', command, E'\n'), false);
        RETURN concat(us, ' ', new_fence, ' ', current_setting('sprag.session'),
          CASE WHEN position(its_line IN seen) > 0 THEN concat(' ', split_part(seen, ' ', 1), ' ',
            split_part(split_part(seen, its_line, 2), E'\n', 1)) END);
      END IF;
    END IF;
    done := pg_advisory_unlock(lock_key);
  END IF;
  RETURN sprag.take_v1(ns, lock, command, asked, ttl_ms, not_after_ms, NULL, lock_key);
END $$;

-- Lets a lease out. Nobody is to be woken: who wants a bare lock has it written down first. Unless
-- `tell`, the client gets the line of the note, and tells it to the trail later.
CREATE FUNCTION sprag.leave_bare_v1(ns text, lock text, asked text, lock_key bigint, tell boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  note text := current_setting('sprag.bare');
  place int := position(asked || E'\t' || lock_key || E'\t' IN note);
  us bigint := sprag.now_us();
  line text;
  done text;
BEGIN
  IF place = 0 THEN
    RETURN sprag.leave_v1(ns, lock, asked, NULL, lock_key);
  END IF;
  line := split_part(substr(note, place), E'\n', 1);
  -- The pulse does not get along: its time may be over.
  IF split_part(line, E'\t', 4)::bigint NOT BETWEEN us - 5000000 AND us THEN
    PERFORM sprag.settle(lock_key);
    RETURN sprag.leave_v1(ns, lock, asked, NULL, lock_key);
  END IF;
  IF tell THEN
    PERFORM sprag.tell_visits_v1(ARRAY[us || E'\t' || line]);
  END IF;
  done := set_config('sprag.bare', replace(note, line || E'\n', ''), false);
  done := set_config('sprag.ended', right(concat(current_setting('sprag.ended'), asked, ' '), 528),
    false);
  -- Last, so that nothing fails when it is free.
  done := pg_advisory_unlock(lock_key);
  RETURN concat(us, ' 0 ', current_setting('sprag.session'), CASE WHEN NOT tell THEN ' ' || line END);
END $$;

-- ---- others --------------------------------------------------------------------------------

-- Asks whoever has a key bare, or all of a namespace, to write that down; who does not for so long that
-- its guards are lost is disconnected. Who it is, or null if there is nobody.
CREATE FUNCTION sprag.ask_to_write(lock_key bigint, ns text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  its sprag.session;
  ms bigint := sprag.now_us() / 1000;
  who text;
BEGIN
  FOR its IN
    SELECT DISTINCT s.* FROM sprag.session AS s JOIN (
      SELECT l.pid, l.classid::bigint << 32 | l.objid::bigint AS key FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      ) AS held ON held.pid = s.pid
      WHERE s.life_us = sprag.life_us() AND s.session <> current_setting('sprag.session')
        AND (held.key = lock_key OR (lock_key IS NULL AND s.space = ns))
        AND NOT EXISTS (SELECT FROM sprag.grip AS g
          WHERE g.key = held.key AND g.session = s.session AND NOT g.shared)
        AND NOT EXISTS (SELECT FROM sprag.lock AS k WHERE k.key = held.key
          AND k.plain_lease IS NOT NULL AND k.plain_session = s.session)
      ORDER BY s.session
  LOOP
    -- Its number may be another's by now.
    CONTINUE WHEN sprag.is_over(its.session);
    who := CASE WHEN its.asked_ms + 1000 > ms IS NOT FALSE
      THEN format('another process, pid %s, which has just got it', its.pid)
      ELSE format('pid %s, which does not answer and is disconnected in %s s', its.pid,
        greatest(ceil((its.asked_ms + 6500 - ms) / 1000.0), 0)) END;
    PERFORM pg_notify('sprag_' || its.session, concat('write ', lock_key));
    IF its.asked_ms IS NULL THEN
      UPDATE sprag.session AS s SET asked_ms = ms WHERE s.session = its.session AND s.asked_ms IS NULL;
    ELSIF its.asked_ms + 6500 <= ms THEN
      BEGIN
        -- A beat that comes from here on waits for this, and is not answered.
        PERFORM pg_terminate_backend(s.pid) FROM (SELECT e.pid FROM sprag.session AS e
          WHERE e.session = its.session AND e.asked_ms = its.asked_ms FOR UPDATE) AS s;
      EXCEPTION WHEN insufficient_privilege THEN
        who := format('pid %s, which hangs and which this user may not disconnect: let an '
          'administrator type GRANT pg_signal_backend TO %I, or end it', its.pid, current_user);
      END;
    END IF;
  END LOOP;
  RETURN who;
END $$;

-- Who has a lock that nobody has by its record, and whether that is soon written down.
CREATE FUNCTION sprag.look_outside_v1(ns text, lock text, lock_key bigint, OUT outsider text,
  OUT is_bare boolean) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sprag.settle(lock_key);
  PERFORM sprag.bury_sessions_if_sound(ns, lock);
  outsider := sprag.outsider(ns, lock, lock_key);
  is_bare := false;
  IF outsider IS NOT NULL THEN
    is_bare := sprag.ask_to_write(lock_key, NULL) IS NOT NULL;
  END IF;
END $$;

-- Whether there are locks in a namespace that are soon written down.
CREATE FUNCTION sprag.look_bare_v1(ns text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sprag.beat_v1('{}');
  RETURN sprag.ask_to_write(NULL, ns) IS NOT NULL;
END $$;
