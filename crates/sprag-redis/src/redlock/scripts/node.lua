-- Read before every other script of a Redlock node: the time, and whether this node may vote.
--
-- KEYS  1 the plain key of the lock    2 what is known about the lock    3 about this node
--
-- A node that has forgotten its locks must not vote before those who held them have stopped to
-- believe in them. It knows by a mark: which run of the server wrote it, when the server had saved
-- its data last, and until when it rests. A run that ends takes the mark with it, or leaves one
-- that names another run; also with an append-only file, as that may lack what was answered last.
-- The time of the last save is cheap to ask for and differs from run to run, so the run itself is
-- only asked for when that has changed.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local mark, saved, longest, stamp

-- What is written on the node about itself.
local function read_mark()
  mark = redis.call('HMGET', KEYS[3], 'saved', 'rest', 'longest')
  saved = tostring(redis.call('LASTSAVE'))
  longest = tonumber(mark[3] or 0)
  -- A server that is restarted within the second of its last save has the same time of it: it is
  -- not noted before that second is over.
  stamp = tonumber(saved) < tonumber(time[1]) and saved or ''
end

-- Which run of the server this is.
local function run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

local function is_marked()
  read_mark()
  if mark[1] == saved then
    return true
  end
  local marked = redis.call('HGET', KEYS[3], 'run')
  if marked and marked == run() then
    redis.call('HSET', KEYS[3], 'saved', stamp)
    return true
  end
  return false
end

-- Why this node does not vote, if so.
local function abstention()
  if not is_marked() then
    return { 'fresh', now_us }
  elseif mark[2] and tonumber(mark[2]) > now then
    return { 'rests', now_us, tonumber(mark[2]) - now }
  end
end

-- The longest lease that anybody asked for is how long a node rests that has forgotten it. Asked
-- after `abstention`.
local function note_length(ttl)
  if ttl > longest then
    redis.call('HSET', KEYS[3], 'longest', ttl)
  end
end

-- What is known about a lock outlives it by so much, and by half of it at least: 'kept' says until
-- when, so that it is not put off each time.
local KEEP_FREE_MS = 24 * 3600000

local function keep(ttl, kept)
  if tonumber(kept or 0) < now + ttl + KEEP_FREE_MS / 2 then
    redis.call('HSET', KEYS[2], 'kept', now + ttl + KEEP_FREE_MS)
    redis.call('PEXPIRE', KEYS[2], ttl + KEEP_FREE_MS)
  end
end

-- Leases that are over, one on each line with the reason; the last few.
local MAX_GONE = 8

local function reason_of(gone, lease)
  local _, at = string.find(gone or '', lease .. ' ', 1, true)
  return at and string.match(gone, '[^\n]*', at + 1) or nil
end

local function bury(gone, lease, reason, kept)
  local lines = { lease .. ' ' .. reason }
  for line in string.gmatch(gone or '', '[^\n]+') do
    if #lines < MAX_GONE then
      lines[#lines + 1] = line
    end
  end
  redis.call('HSET', KEYS[2], 'gone', table.concat(lines, '\n'))
  keep(0, kept)
end

-- Who has the plain key. One that is not of sprag is known by a digest of its value, so that it
-- can be named and broken; a real fence is never so small.
local function describe(value)
  local known = redis.call('HMGET', KEYS[2], 'lease', 'fence', 'ttl', 'detached', 'about')
  local left = redis.call('PTTL', KEYS[1])
  if known[1] == value then
    return { value, left, tonumber(known[2] or 0), tonumber(known[3]), tonumber(known[4]), known[5] }
  end
  local digest = redis.sha1hex(value)
  left = left >= 0 and left or 366 * 24 * 3600000
  local fence = tonumber(string.sub(digest, 1, 8), 16) + 1
  return { string.sub(digest, 1, 32), left, fence, left, 1, '' }
end
