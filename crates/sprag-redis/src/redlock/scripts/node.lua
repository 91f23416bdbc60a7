-- What the scripts of a Redlock node have in common: above all whether the node may vote.
--
-- A node that has forgotten its locks must not vote before those who held them have stopped to
-- believe in them. It knows by a mark: which run of the server wrote it, when the server had saved
-- its data last, and until when it rests. A run that ends takes the mark with it, or leaves one
-- that names another run; also with an append-only file, as that may lack what was answered last.
-- The time of the last save is cheap to ask for and differs from run to run, so the run itself is
-- only asked for when that has changed.

local mark, saved, longest, stamp

-- The longest lease that was ever asked for counts for no more than this many milliseconds. Those that
-- are longer are noted one by one, with their ends, and no longer count when they are over.
local SHORT_MS = 15 * 60000
local LONG_KEY = KEYS[3] .. ':long'

-- How long the longest of those lasts.
local function long_left()
  local last = call('ZREVRANGE', LONG_KEY, 0, 0, 'WITHSCORES')[2]
  return last and math.max(tonumber(last) - now, 0) or 0
end

-- What is written on the node about itself.
local function read_mark()
  mark = call('HMGET', KEYS[3], 'saved', 'rest', 'longest')
  saved = tostring(call('LASTSAVE'))
  longest = math.min(tonumber(mark[3] or 0), SHORT_MS)
  -- A server that is restarted within the second of its last save has the same time of it: it is
  -- not noted before that second is over.
  stamp = tonumber(saved) < tonumber(time[1]) and saved or ''
end

-- Which run of the server this is.
local function run()
  return string.match(call('INFO', 'server'), 'run_id:(%x+)')
end

local function is_marked()
  read_mark()
  if mark[1] == saved then
    return true
  end
  local marked = call('HGET', KEYS[3], 'run')
  if marked and marked == run() then
    call('HSET', KEYS[3], 'saved', stamp)
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

-- The longest lease that anybody has or asked for is how long a node rests that has forgotten it. Asked
-- after `abstention`.
local function note_length(ttl)
  if math.min(ttl, SHORT_MS) > longest then
    call('HSET', KEYS[3], 'longest', math.min(ttl, SHORT_MS))
  end
end

-- Notes a lease that this node has voted for, or is asked to extend, if it is one of the longer ones.
local function note_long(ttl, lease)
  if ttl > SHORT_MS then
    call('ZREMRANGEBYSCORE', LONG_KEY, '-inf', string.format('%.0f', now))
    call('ZADD', LONG_KEY, 'GT', string.format('%.0f', now + ttl), lease)
    call('PEXPIRE', LONG_KEY, long_left())
  end
end

-- Makes sure that what is known of the lock is kept for long enough; until when it is.
local function keep(ttl, kept)
  kept = tonumber(kept or 0)
  if kept < now + ttl + KEEP_FREE_MS / 2 then
    kept = now + ttl + KEEP_FREE_MS
    call('HSET', KEYS[2], 'kept', kept)
    call('PEXPIRE', KEYS[2], ttl + KEEP_FREE_MS)
  end
  return kept
end

-- Why a lease is over, if it is: it was given back, unless there is a line that says otherwise.
local function reason_of(over, gone, lease)
  local _, at = string.find(gone or '', lease .. ' ', 1, true)
  if at then
    return string.match(gone, '[^\n]*', at + 1)
  end
  return string.find(over or '', lease, 1, true) and '"released"' or nil
end

-- Who had the lock last; nobody if that is not known.
local function read_who(text)
  local attempt, ttl, about = string.match(text or '', '^(%d+):(%d+):(.*)$', 34)
  if not attempt then
    return { attempt = 0 }
  end
  return {
    lease = string.sub(text, 1, 32), detached = string.sub(text, 33, 33), attempt = tonumber(attempt),
    ttl = tonumber(ttl), about = about,
  }
end

-- Who has the plain key. One that is not of sprag is known by a digest of its value, so that it
-- can be named and broken; a real fence is never so small.
local function describe(value)
  local known = call('HMGET', KEYS[2], 'who', 'fence')
  local who, left = read_who(known[1]), call('PTTL', KEYS[1])
  if who.lease == value then
    return { value, left, tonumber(known[2] or 0), who.ttl, tonumber(who.detached), who.about }
  end
  local digest = redis.sha1hex(value)
  left = left >= 0 and left or 366 * 24 * 3600000
  local fence = tonumber(string.sub(digest, 1, 8), 16) + 1
  return { string.sub(digest, 1, 32), left, fence, left, 1, '' }
end

