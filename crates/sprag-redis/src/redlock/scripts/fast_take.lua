-- One vote for one attempt of a lease, in most cases: the lock is free, and was taken before since
-- the node was last asked whether it votes. Whatever is not plainly so falls through to take.lua,
-- within the same call. Every field that is read costs about as much as a call, so few are read.
--
-- KEYS  1 the plain key of the lock    2 what is known about the lock    3 about this node
-- ARGV  1 the lease    2 the attempt    3 its TTL    4 not done after this, by this node's clock
--       5 a fence that suits the asker; 0 for none at all
--       6 who asks: the lease, whether it outlives its process (0 or 1), the attempt, a colon, the
--         TTL, a colon, and JSON that nobody here looks into
--
-- What is known about a lock, a hash: 'fence'; 'who' had it last; 'over', the last leases that are,
-- one behind the other; 'gone', why those are that were not given back; 'seen' and 'kept', see below;
-- 'owner', a lease that was adopted and by whom.

local MAX_LEAD_US = 60 * 1000000
local fenced = ARGV[5] ~= '0'

-- Writes down who has the lock from now on; the fence of the grant, as text.
local function enter(last)
  if not fenced then
    call('HSET', KEYS[2], 'who', ARGV[6])
    return '0'
  end
  local fence = ARGV[5]
  local wanted, least = tonumber(fence), math.max((last or 0) + 1, now_us)
  if wanted <= least or wanted > now_us + MAX_LEAD_US then
    fence = string.format('%.0f', least)
  end
  call('HSET', KEYS[2], 'who', ARGV[6], 'fence', fence)
  return fence
end

-- 'seen' is what a node saw when it voted: when the server had saved its data last, and until when
-- what it knows of the lock is sure to be kept for half a day, in 10 and 13 digits, and the TTL. A
-- node that has forgotten its locks has forgotten this too, or was restarted and says another time of
-- the save: so one that says the same still votes, and knows of leases that long. Numbers are not
-- written as text here: that takes longer than a call.
local seen
if fenced then
  seen = call('HMGET', KEYS[2], 'seen', 'over', 'fence')
else
  seen = call('HMGET', KEYS[2], 'seen', 'over')
end
if seen[1] and string.sub(seen[1], 24) == ARGV[3]
  and now - ARGV[4] <= 0 and now - string.sub(seen[1], 11, 23) <= 0
  and call('LASTSAVE') - string.sub(seen[1], 1, 10) == 0
  and not string.find(seen[2] or '', ARGV[1], 1, true)
  and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  return time[1] .. ' ' .. time[2] .. ' ' .. enter(seen[3])
end

