-- One vote for one attempt of a lease.
--
-- ARGV  1 the lease    2 the attempt    3 its TTL    4 not done after this, by this node's clock
--       5 a fence that suits the asker; 0 for none at all    6 who asks
--       7 whether the lease outlives its process: 0 or 1

local MAX_LEAD_US = 60 * 1000000

local no = abstention()
if no then
  return no
elseif now > tonumber(ARGV[4]) then
  return { 'late', now_us }
end
local lease, attempt, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
note_length(ttl)
local known = redis.call('HMGET', KEYS[2], 'fence', 'attempt', 'gone', 'kept')
local reason = reason_of(known[3], lease)
local free = not reason and redis.call('SET', KEYS[1], lease, 'NX', 'PX', ttl)
local held = not free and redis.call('GET', KEYS[1])
if held and held ~= lease then
  return { 'held', now_us, describe(held) }
elseif reason then
  return { 'gone', now_us, reason }
end
local fence = tonumber(known[1] or 0)
if held then
  -- An answer was lost, or an attempt was not freed. Counted from now on it is good for this one.
  if attempt < tonumber(known[2] or 0) then
    return { 'late', now_us }
  elseif attempt > tonumber(known[2] or 0) then
    redis.call('PEXPIRE', KEYS[1], ttl)
    redis.call('HSET', KEYS[2], 'attempt', ARGV[2], 'ttl', ARGV[3])
  end
  return { 'yes', now_us, fence }
end
local wanted = tonumber(ARGV[5])
if wanted > 0 then
  fence = math.max(fence + 1, now_us)
  if wanted > fence and wanted <= now_us + MAX_LEAD_US then
    fence = wanted
  end
end
redis.call('HSET', KEYS[2], 'lease', lease, 'attempt', ARGV[2], 'ttl', ARGV[3], 'about', ARGV[6],
  'detached', ARGV[7], 'fence', string.format('%.0f', fence))
keep(ttl, known[4])
return { 'yes', now_us, fence }
