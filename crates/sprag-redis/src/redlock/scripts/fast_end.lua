-- Gives a lease back, in most cases: it has the key. Whatever is not plainly so falls through to
-- tend.lua, within the same call.

-- How many leases are known to be over, and of how many it is known why.
local MAX_OVER = 8

if ARGV[1] == 'end' and ARGV[3] == '"released"' and redis.call('GET', KEYS[1]) == ARGV[2] then
  local over = redis.call('HGET', KEYS[2], 'over')
  -- Where none is known yet, it also has to be noted for how long they are kept.
  if over then
    redis.call('DEL', KEYS[1])
    -- Where the leases are noted that are long.
    redis.call('ZREM', KEYS[3] .. ':long', ARGV[2])
    redis.call('HSET', KEYS[2], 'over', ARGV[2] .. string.sub(over, 1, 32 * (MAX_OVER - 1)))
    return '0 0 0'
  end
end

