-- What sprag keeps. A row of `lock` stays for a while when the lock is free: see lease/sql/sweep.sql.

CREATE TABLE sprag.meta (
  version int NOT NULL
);
INSERT INTO sprag.meta VALUES (1);

-- Which of the two kinds of locks a namespace has; they exclude nobody of the other kind.
CREATE TABLE sprag.namespace (
  space text COLLATE "C" PRIMARY KEY,
  mode text NOT NULL CHECK (mode IN ('lease', 'advisory')),
  -- The largest fence of all locks whose rows were cleared away.
  floor bigint NOT NULL DEFAULT 0
);

CREATE TABLE sprag.lock (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL DEFAULT 0,
  -- The largest fence given out. Of a lock with a plain holder its own, although a larger one may be
  -- promised.
  fence bigint NOT NULL DEFAULT 0,
  tickets bigint NOT NULL DEFAULT 0,
  permits bigint,
  holders jsonb NOT NULL DEFAULT '[]',
  gone jsonb NOT NULL DEFAULT '[]',
  -- Where the holder that waits for its upgrade is woken.
  upgrader text,
  waiting int NOT NULL DEFAULT 0,
  -- No waiter's time is over before this; that of the heir does not matter.
  patience_ms bigint NOT NULL DEFAULT 0,
  -- The waiter that has the lock next, whoever else comes, and its fence. See lease/sql/queue.sql.
  heir_lease text COLLATE "C",
  heir_fence bigint,
  -- The holder of an exclusive lock: the command by which it came, or its place in the queue, as it
  -- was written, and when it was renewed. `holders` is empty then. See lease/sql/plain.sql.
  plain text,
  plain_lease text COLLATE "C",
  plain_us bigint NOT NULL DEFAULT 0,
  plain_ttl_ms bigint NOT NULL DEFAULT 0,
  -- The leases that were released that way since, which are not in `gone` yet.
  ended text NOT NULL DEFAULT '',
  -- When the record was written the long way, or the lock was given back.
  used_us bigint NOT NULL DEFAULT 0,
  -- Of an advisory lock: its key, and whose session has it for the plain holder.
  key bigint,
  plain_session text COLLATE "C",
  plain_pid int,
  PRIMARY KEY (space, name)
) WITH (fillfactor = 50);
CREATE INDEX lock_key ON sprag.lock (key) WHERE key IS NOT NULL;

CREATE TABLE sprag.waiter (
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  lease text COLLATE "C" NOT NULL,
  -- The queue's order: arrival minus priority, then the ticket.
  arrival bigint NOT NULL,
  ticket bigint NOT NULL,
  expires_ms bigint NOT NULL,
  permits bigint NOT NULL,
  -- Where its process is woken; none through a connection pool.
  channel text,
  request jsonb NOT NULL,
  -- By lease first. Statements that look for one compare the space with IS NOT DISTINCT FROM, so that
  -- no plan goes through a whole queue by the other index.
  PRIMARY KEY (lease, name, space)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX waiter_order ON sprag.waiter (space, name, arrival, ticket);

-- The audit trail: what happened here, or what a client noted.
CREATE TABLE sprag.trail (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  space text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  at_ms bigint NOT NULL,
  event jsonb,
  entry jsonb,
  -- Of a plain holder: its command, its fence, whether it came or went, and after how long.
  plain text,
  session text,
  fence bigint,
  came boolean,
  after_ms bigint
);
