-- Gives a lease back, in most cases: it has the key. Whatever is not plainly so falls through to
-- tend.lua, within the same call.

-- How many leases that are over are known, of each kind.
local MAX_GONE = 8

if ARGV[1] == 'end' and ARGV[3] == '"released"' and redis.call('GET', KEYS[1]) == ARGV[2] then
  local known = redis.call('HMGET', KEYS[2], 'freed', 'kept')
  -- Without 'kept' nothing is known of the lock, and that has to be noted first.
  if known[2] then
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[2], 'freed', string.sub(ARGV[2] .. (known[1] or ''), 1, 32 * MAX_GONE))
    return '0 0 0'
  end
end

