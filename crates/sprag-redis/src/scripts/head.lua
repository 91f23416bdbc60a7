-- The beginning of every script: what the arguments are, how a record is written, the clock.
--
-- KEYS  1 the plain key    2 the record, a hash    3 the waiters by lease
--       4 the queue, by virtual arrival    5 the waiters by the end of their patience
--       6 the trail    7 the names in use; not in a Cluster, where they would be in another slot
-- ARGV  1 the command    2 the lock's name    3 the lease
--       acquire, take    4 the TTL    5 not after    6 the holder    7 other wishes    8 the channel
--       renew, keep      4 the TTL    5 the new session, '-' for none
--       release          4 the channel
--       convert          4 the mode    5 whether to wait    6 the channel    7 the fence
--       evict            4 the fence    5 the loss, as JSON
--       What may take the lock from its holder has one more: the channel where all hear of that.
--
-- A holder is written as its session, its party, whether its lease is fixed, and JSON that nobody
-- here looks into. A session that is none is written as 32 dashes.
--
-- The field 'n' of the record has its numbers. A record is FREE; or of ONE exclusive holder, who is
-- in 'h'; or of MANY, whose holders are in 'x', as are all that are in any way special. The leases
-- that were given back last are in a ring, 'g0' to 'g7', those that were lost in another way in 'o';
-- 'n' has the last eight digits of all of them, first of the latter, to see at a glance that a
-- lease is none of them.
--
-- Whoever hands the lock over makes the next one wait, so what can be done before or after that is.
-- Before: 'w' has the lease of the first in line and a copy of its entry. After: the new holder is
-- still among the waiters, and in 'w', until the next call but a renewal; the numbers have its ticket.
--
-- Who is let in by a release may be told an heir, to whom the lock is promised, and lets it in before
-- its own release is written. So until that is written nobody else is let in, and the plain key, which
-- is all that other programs see, lasts as long as either of them may believe in its lease: that of
-- the heir counts from its last question that was answered "not yet". The promise is in 'p'.

local call = redis.call
-- The format, fence, tickets, kept until, renewed, TTL; before when no waiter's patience ends; one
-- more than the ticket of a holder that is still among the waiters, or 0; the kind, whether it is
-- listed, how many are in 'o', the next place in the ring, how many wait; the lease, the ends of
-- those gone. Before how many wait: whether there is a promise.
local NUMBERS = '<BdddddddBBBBBHc32Bc0'
local FORMAT, SHORTEST = 3, 97
-- The fence of the one exclusive holder, because the last one is promised; the heir's; until when the
-- heir may believe in its lease; who it is.
local PROMISE = '<dddc32'
local PROMISE_SIZE = 56
-- A waiter: its mode, permits, TTL, sign of life, arrival, priority and ticket; the size of its
-- channel. The channel and the holder follow.
local WAIT = '<BdddddddB'
local EXCLUSIVE, FORCED = 1, 127
local FREE, ONE, MANY = 0, 1, 2
local MAX_GONE = 8
local MAX_FENCE = 9007199254740991
-- How long a record outlives its last use at least. What comes after it has a larger fence by the
-- time of day; this is for a clock that was set, and for holders that ask what became of them.
local HOUR = 3600000
-- How many entries the trail of all locks has, and the one of a lock in a Cluster. Up to a hundred
-- more stay, because nothing is trimmed exactly.
local TRAIL = KEYS[7] and '9900' or '900'

local command, name, lease = ARGV[1], ARGV[2], ARGV[3]
local now_us, now

-- Takes a holder out of the waiters.
local function tidy(ticket, entrant)
  call('HDEL', KEYS[3], entrant)
  call('ZREM', KEYS[4], string.format('%016.0f:%s', ticket, entrant))
  call('ZREM', KEYS[5], entrant)
end

-- The lease of the first in line and its entry, as in 'w'.
local function first_in_line()
  local member = call('ZRANGE', KEYS[4], 0, 0)[1]
  local entry = member and call('HGET', KEYS[3], string.sub(member, 18))
  return entry and string.sub(member, 18) .. entry or nil
end

-- The same of the first two.
local function first_two_in_line()
  local members = call('ZRANGE', KEYS[4], 0, 1)
  local one, two = members[1] and string.sub(members[1], 18), members[2] and string.sub(members[2], 18)
  if not two then
    return first_in_line()
  end
  local entries = call('HMGET', KEYS[3], one, two)
  return entries[1] and one .. entries[1] or nil, entries[2] and two .. entries[2] or nil
end

-- Whether the holder that is written so lives by a session.
local function has_session(text)
  return string.byte(text) ~= 45
end

-- How long a lease lasts that is renewed to `ttl`: its end only moves forward, as the renewal may have
-- been overtaken by a longer one. See `Hold::left_ms`.
local function longer(ttl, renewed, was)
  return math.max(ttl, math.min(renewed + was - now, was))
end

local function read_clock()
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
  now = (now_us - now_us % 1000) / 1000
end
