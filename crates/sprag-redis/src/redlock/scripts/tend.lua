-- What becomes of a lease after it was granted.
--
-- ARGV  1 what    2 the lease    and, by what:
--       store    3 the attempt    4 the fence
--       extend   3 the TTL        4 whether it outlives its process from now on, if that changes
--       free     3 the attempt
--       end      3 the reason
--       break    3 the reason

local what, lease = ARGV[1], ARGV[2]
local held = redis.call('GET', KEYS[1])
local known = redis.call('HMGET', KEYS[2], 'fence', 'attempt', 'gone', 'detached', 'kept')
local fence, attempt = tonumber(known[1] or 0), tonumber(known[2] or 0)
local mine = held == lease

if what == 'free' then
  -- Not what a later attempt of the same lease has got.
  mine = mine and attempt <= tonumber(ARGV[3])
  if mine then
    redis.call('DEL', KEYS[1])
  end
  return { mine and 'yes' or 'no', now_us, fence }
elseif what == 'end' then
  local reason = reason_of(known[3], lease)
  if mine then
    redis.call('DEL', KEYS[1])
  end
  if not reason then
    bury(known[3], lease, ARGV[3], known[5])
  end
  return { mine and 'yes' or reason and 'gone' or 'no', now_us, mine and fence or reason }
elseif what == 'break' then
  mine = held and (mine or string.sub(redis.sha1hex(held), 1, 32) == lease)
  if mine then
    redis.call('DEL', KEYS[1])
    bury(known[3], lease, ARGV[3], known[5])
  end
  return { mine and 'yes' or 'no', now_us, fence }
end

local no = abstention()
if no then
  return no
end
-- In its last millisecond a key is still there, although its time is over.
if not mine or redis.call('PTTL', KEYS[1]) <= 0 then
  local reason = reason_of(known[3], lease)
  return { reason and 'gone' or 'no', now_us, reason }
elseif what == 'store' then
  if attempt ~= tonumber(ARGV[3]) then
    return { 'no', now_us }
  end
  fence = math.max(fence, tonumber(ARGV[4]))
  redis.call('HSET', KEYS[2], 'fence', string.format('%.0f', fence))
else
  local ttl = tonumber(ARGV[3])
  note_length(ttl)
  redis.call('PEXPIRE', KEYS[1], ttl)
  local detached = ARGV[4] ~= '' and ARGV[4] or known[4] or '0'
  redis.call('HSET', KEYS[2], 'ttl', ARGV[3], 'detached', detached)
  keep(ttl, known[5])
end
return { 'yes', now_us, fence }
