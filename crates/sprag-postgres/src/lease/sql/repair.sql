-- Records that cannot be read: somebody has changed them by hand, or restored half of them.

-- Whether a text is JSON.
CREATE FUNCTION sprag.is_json(written text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  read jsonb;
BEGIN
  read := written::jsonb;
  RETURN read IS NOT NULL;
EXCEPTION WHEN data_exception THEN
  RETURN false;
END $$;

-- Whether a holder or a waiter has what every function reads of it.
CREATE FUNCTION sprag.is_one(one jsonb) RETURNS boolean LANGUAGE sql STABLE
RETURN coalesce(jsonb_typeof(one -> 'lease') = 'string' AND jsonb_typeof(one -> 'renewed_ms') = 'number'
  AND jsonb_typeof(one -> 'ttl_ms') = 'number' AND one ? 'mode'
  AND jsonb_typeof(one -> 'holder') = 'object', false);

-- Whether the record of a lock can be read.
CREATE FUNCTION sprag.is_sound(l sprag.lock) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (l.plain_lease IS NULL OR CASE WHEN sprag.is_json(l.plain)
      THEN coalesce(jsonb_typeof(l.plain::jsonb -> 'holder') = 'object', false) ELSE false END)
    AND jsonb_typeof(l.holders) = 'array' AND jsonb_typeof(l.gone) = 'array'
    AND NOT EXISTS (SELECT FROM jsonb_array_elements(
        CASE jsonb_typeof(l.holders) WHEN 'array' THEN l.holders ELSE '[]' END) AS all_of(one)
      WHERE NOT sprag.is_one(one) OR coalesce(jsonb_typeof(one -> 'fence') <> 'number', true))
    AND (l.waiting = 0 OR NOT EXISTS (SELECT FROM sprag.waiter AS w
      WHERE w.space = l.space AND w.name = l.name AND NOT sprag.is_one(w.request)));
END $$;

-- Who breaks a lock whose record it cannot read empties it, if nobody was let in since it was seen. Its
-- fence stays, so that the next one is larger. Null if it has another by now.
CREATE FUNCTION sprag.repair_v1(ns text, lock text, command jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  l sprag.lock;
  us bigint;
  unknown jsonb := '{"worker_id": "unknown", "node_id": "its record could not be read"}';
BEGIN
  SELECT * INTO l FROM sprag.lock AS k WHERE k.space = ns AND k.name = lock FOR UPDATE;
  us := sprag.now_us();
  IF l.space IS NULL OR greatest(l.fence, l.heir_fence) IS DISTINCT FROM (command ->> 'fence')::bigint THEN
    RETURN NULL;
  END IF;
  -- Its session is asked to let go of the key.
  PERFORM sprag.unfold(ns, lock);
  DELETE FROM sprag.waiter AS w WHERE w.space = ns AND w.name = lock;
  UPDATE sprag.lock AS k
    SET version = k.version + 1, fence = greatest(k.fence, k.heir_fence), permits = NULL,
      holders = '[]', gone = '[]', upgrader = NULL, waiting = 0, patience_ms = 0, heir_lease = NULL,
      heir_fence = NULL, plain = NULL, plain_lease = NULL, ended = '', used_us = us
    WHERE k.space = ns AND k.name = lock;
  PERFORM sprag.tell(ns, lock, us / 1000, jsonb_build_object(
    'kind', jsonb_build_object('gone', jsonb_build_object('broken', jsonb_build_object(
      'by', command -> 'by', 'reason', command -> 'reason', 'fence', command -> 'fence'))),
    'lease', repeat('0', 32), 'session', NULL, 'fence', command -> 'fence', 'mode', 'exclusive',
    'holder', unknown, 'after_ms', 0));
  PERFORM sprag.durable(true);
  RETURN sprag.answer(us, jsonb_build_object('evicted', jsonb_build_array(unknown)));
END $$;
