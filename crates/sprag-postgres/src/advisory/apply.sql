-- One command on one advisory lock. The answer says in which `session` it was done. Where the record
-- would grant the lock and somebody has its key, `outsider` says who; `leaving` that it was asked to
-- go, `bare` that it was asked to write that down, or has just done so.
CREATE FUNCTION sprag.advisory_v1(ns text, lock text, command jsonb, lock_key bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  what text := command ->> 'do';
  asked text := command ->> 'lease';
  session text := current_setting('sprag.session');
  channel text := 'sprag_' || session;
  answer jsonb;
  urged record;
  outsider text;
  leaving boolean := false;
  had boolean := false;
  bare text;
  kept boolean;
BEGIN
  PERFORM sprag.settle(lock_key);
  -- Whoever takes the lock bare meanwhile, and gives it back, has a later fence than is drawn here.
  kept := what <> 'acquire' OR pg_try_advisory_xact_lock_shared(lock_key);
  IF command ? 'session' THEN
    command := command || jsonb_build_object('session', session);
  END IF;
  IF what IN ('acquire', 'release', 'convert') THEN
    PERFORM sprag.bury_sessions(ns, lock, CASE what WHEN 'acquire' THEN asked END);
  END IF;
  BEGIN
    answer := sprag.apply_v1(ns, lock, command, channel);
    IF what = 'acquire' AND answer -> 'outcome' ? 'granted' THEN
      had := sprag.is_plain(ns, lock, asked) OR EXISTS (SELECT FROM sprag.grip AS g
        WHERE g.lease = asked AND g.session = current_setting('sprag.session'));
    END IF;
    IF answer -> 'outcome' ? 'granted' AND what IN ('acquire', 'convert')
      AND NOT ((had OR kept)
        AND sprag.take_grip(ns, lock, asked, lock_key, answer -> 'outcome' -> 'granted' -> 'mode'))
    THEN
      -- Who pushes a holder aside has waited for it already.
      urged := sprag.urge_v1(lock_key, CASE WHEN command ? 'steal' THEN 100 ELSE 1000 END);
      leaving := urged.left_over > 0;
      outsider := coalesce(urged.spared, sprag.outsider(ns, lock, lock_key), CASE
        WHEN leaving THEN 'its last holder, which was asked to let go'
        WHEN sprag.is_quiet() THEN 'whoever held it when the server crashed a moment ago'
        ELSE 'somebody who was just here' END);
      IF NOT leaving THEN
        RAISE SQLSTATE 'SP001';
      END IF;
    END IF;
  EXCEPTION WHEN SQLSTATE 'SP001' THEN
    -- Who may wait for other readers waits for those of other programs too.
    answer := sprag.answer(sprag.now_us(), CASE
      WHEN what = 'convert' AND (command ->> 'queue')::boolean
        AND sprag.mode_of(ns, lock, asked) <> '"shared"' THEN '{"queued": {"ahead": 0}}'::jsonb
      ELSE '"held"' END);
    bare := sprag.ask_to_write(lock_key, NULL);
    -- Who is not to be seen any more has gone, or has written it down since: it is asked again.
    IF bare IS NULL AND NOT sprag.is_quiet() AND sprag.outsider(ns, lock, lock_key) IS NULL THEN
      bare := outsider;
    END IF;
  END;
  IF outsider IS NULL AND NOT had AND what = 'acquire' AND answer -> 'outcome' ? 'granted' THEN
    answer := sprag.fresh(ns, lock, command, answer);
  END IF;
  IF answer ? 'told' THEN
    answer := answer || jsonb_build_object('told',
      sprag.hand_over(ns, lock, lock_key, answer -> 'told'));
  END IF;
  -- Last, so that nobody comes in between.
  IF what = 'release' THEN
    PERFORM sprag.let_go(asked);
  END IF;
  RETURN answer || jsonb_build_object('session', session, 'outsider', coalesce(bare, outsider),
    'leaving', leaving, 'bare', bare IS NOT NULL);
END $$;

-- What a lease has by the record.
CREATE FUNCTION sprag.mode_of(ns text, lock text, asked text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT sprag.hold_of((sprag.whole(k)).holders, asked) -> 'mode' FROM sprag.lock AS k
    WHERE k.space = ns AND k.name = lock);
END $$;

-- Takes the session lock for those of this session who were granted the lock. Who cannot have it is
-- told to ask.
CREATE FUNCTION sprag.hand_over(ns text, lock text, lock_key bigint, told jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  heard jsonb := '[]';
  one text;
  hold jsonb;
BEGIN
  FOR one IN SELECT * FROM jsonb_array_elements_text(told) LOOP
    SELECT sprag.hold_of(k.holders, split_part(one, ':', 1)) INTO hold FROM sprag.lock AS k
      WHERE k.space = ns AND k.name = lock;
    IF hold IS NULL OR NOT sprag.take_grip(ns, lock, hold ->> 'lease', lock_key, hold -> 'mode') THEN
      one := split_part(one, ':', 1) || ':0';
    END IF;
    heard := heard || to_jsonb(one);
  END LOOP;
  RETURN heard;
END $$;

-- What was granted by another's release, and could not be taken at once, counts from now: its holder
-- has been told "not yet" since.
CREATE FUNCTION sprag.fresh(ns text, lock text, command jsonb, answer jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT (sprag.hold_of(k.holders, command ->> 'lease') ->> 'renewed_ms')::bigint
      FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock)
    < (answer ->> 'now_us')::bigint / 1000 THEN
    RETURN sprag.run(ns, lock, jsonb_build_object('do', 'renew', 'lease', command -> 'lease',
      'ttl_ms', command -> 'ttl_ms'), NULL);
  END IF;
  RETURN answer;
END $$;

-- Many renewals. Who was granted the lock and has no grip yet, waits; who had one in a session that
-- is over, has lost it. Who was upgraded while another program reads keeps what it has.
CREATE FUNCTION sprag.renew_advisory_v1(ns text, locks text[], commands jsonb,
  lock_keys bigint[], patience_us bigint) RETURNS TABLE (answer jsonb, session text)
LANGUAGE plpgsql AS $$
DECLARE
  answers jsonb[];
  mode jsonb;
  asked text;
BEGIN
  session := current_setting('sprag.session');
  IF current_setting('sprag.bare') <> '' THEN
    PERFORM sprag.settle(named.key) FROM (SELECT all_of.key
      FROM unnest(locks, lock_keys) AS all_of(name, key) ORDER BY all_of.name COLLATE "C") AS named;
  END IF;
  answers := sprag.renew_v1(ns, locks, commands, 'sprag_' || session, patience_us);
  FOR place IN 1 .. cardinality(answers) LOOP
    answer := answers[place];
    -- Whose turn it is because another's time was over.
    IF answer ? 'told' THEN
      answer := answer || jsonb_build_object('session', session,
        'told', sprag.hand_over(ns, locks[place], lock_keys[place], answer -> 'told'));
    END IF;
    IF answer ? 'plain' THEN
      RETURN NEXT;
      CONTINUE;
    END IF;
    mode := answer -> 'outcome' -> 'granted' -> 'mode';
    asked := commands -> (place - 1) ->> 'lease';
    IF mode IS NOT NULL AND NOT sprag.is_plain(ns, locks[place], asked)
      AND NOT EXISTS (SELECT FROM sprag.grip AS g WHERE g.lease = asked
        AND g.session = current_setting('sprag.session') AND g.shared = (mode <> '"exclusive"')) THEN
      IF (SELECT sprag.hold_of((sprag.whole(k)).holders, asked) ->> 'session' FROM sprag.lock AS k
          WHERE k.space = ns AND k.name = locks[place]) <> session THEN
        answer := jsonb_set(answer, '{outcome}', '{"gone": "session_died"}');
      ELSIF NOT sprag.take_grip(ns, locks[place], asked, lock_keys[place], mode) THEN
        IF EXISTS (SELECT FROM sprag.grip AS g WHERE g.lease = asked
          AND g.session = current_setting('sprag.session')) THEN
          answer := jsonb_set(answer, '{outcome,granted,mode}', '"upgradable"');
        ELSE
          answer := jsonb_set(answer, '{outcome}', '{"queued": {"ahead": 0}}');
        END IF;
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- The same one by one, for either kind of lock: where a record cannot be read, or somebody keeps its
-- row, the others are renewed all the same. It waits for nobody. Answers may be missing at the end.
CREATE FUNCTION sprag.renew_each_v1(ns text, locks text[], commands jsonb, channel text,
  lock_keys bigint[], patience_us bigint) RETURNS TABLE (answer jsonb, session text)
LANGUAGE plpgsql AS $$
DECLARE
  began bigint := sprag.now_us();
  failed bigint[] := '{}';
BEGIN
  FOR place IN 1 .. cardinality(locks) LOOP
    EXIT WHEN place > 1 AND sprag.now_us() - began > patience_us;
    BEGIN
      PERFORM FROM sprag.lock AS k WHERE k.space = ns AND k.name = locks[place]
        FOR UPDATE SKIP LOCKED;
      IF NOT FOUND
        AND EXISTS (SELECT FROM sprag.lock AS k WHERE k.space = ns AND k.name = locks[place]) THEN
        RAISE lock_not_available USING MESSAGE = 'somebody keeps its row locked';
      ELSIF lock_keys IS NULL THEN
        answer := (sprag.renew_v1(ns, ARRAY[locks[place]], jsonb_build_array(commands -> (place - 1)),
          channel, patience_us))[1];
      ELSE
        SELECT r.answer, r.session INTO answer, session
          FROM sprag.renew_advisory_v1(ns, ARRAY[locks[place]],
            jsonb_build_array(commands -> (place - 1)), ARRAY[lock_keys[place]], patience_us) AS r;
      END IF;
    EXCEPTION WHEN OTHERS THEN
      answer := jsonb_build_object('failed', SQLERRM);
      failed := failed || lock_keys[place];
    END;
    RETURN NEXT;
  END LOOP;
  IF lock_keys IS NULL THEN
    PERFORM sprag.durable(true);
  ELSIF failed <> '{}' THEN
    PERFORM sprag.sweep_v1(failed);
  END IF;
END $$;
