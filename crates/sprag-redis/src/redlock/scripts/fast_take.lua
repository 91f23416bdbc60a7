-- One vote for one attempt of a lease, in most cases: the lock is free, and was taken before since
-- the node was last asked whether it votes. Whatever is not plainly so falls through to take.lua,
-- within the same call.
--
-- KEYS  1 the plain key of the lock    2 what is known about the lock    3 about this node
-- ARGV  1 the lease    2 the attempt    3 its TTL    4 not done after this, by this node's clock
--       5 a fence that suits the asker; 0 for none at all
--       6 who asks: the lease, whether it outlives its process (0 or 1), the attempt, a colon, the
--         TTL, a colon, and JSON that nobody here looks into
--
-- What is known about a lock, a hash: 'fence'; 'who' had it last; 'freed', the last leases that were
-- given back; 'gone', those that ended in another way; 'seen' and 'kept', see below.

local MAX_LEAD_US = 60 * 1000000

-- The fence of a new grant, as text.
local function next_fence(fence)
  if ARGV[5] == '0' then
    return fence or '0'
  end
  local wanted, least = tonumber(ARGV[5]), math.max((fence or 0) + 1, now_us)
  if wanted > least and wanted <= now_us + MAX_LEAD_US then
    return ARGV[5]
  end
  return string.format('%.0f', least)
end

local known = call('HMGET', KEYS[2], 'fence', 'seen', 'kept', 'freed', 'gone')
-- 'seen' is when the server had saved its data last, and the TTL, as they were at a vote. A node that
-- has forgotten its locks has forgotten this too, or was restarted and says another time: so it still
-- votes, and knows of leases that long.
if known[2] == call('LASTSAVE') .. ':' .. ARGV[3] and now - ARGV[4] <= 0
  and known[3] - ARGV[3] - now >= KEEP_FREE_MS / 2
  and not string.find(known[4] or '', ARGV[1], 1, true)
  and not string.find(known[5] or '', ARGV[1], 1, true)
  and call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  local fence = next_fence(known[1])
  call('HSET', KEYS[2], 'who', ARGV[6], 'fence', fence)
  return time[1] .. ' ' .. time[2] .. ' ' .. fence
end

