-- What becomes of a lease after it was granted.
--
-- ARGV  1 what    2 the lease    and, by what:
--       store    3 the attempt    4 the fence
--       extend   3 the TTL        4 '-' to outlive its process from now on, or who adopts it, if
--                                   that changes
--       free     3 the attempt
--       end      3 the reason
--       break    3 the reason

-- Notes that a lease is over, and why if it was not given back; the last few are known.
local function bury(over, gone, lease, reason, kept)
  over = lease .. string.sub(over or '', 1, 32 * (MAX_OVER - 1))
  if reason == '"released"' then
    call('HSET', KEYS[2], 'over', over)
  else
    local lines = { lease .. ' ' .. reason }
    for line in string.gmatch(gone or '', '[^\n]+') do
      if #lines < MAX_OVER then
        lines[#lines + 1] = line
      end
    end
    call('HSET', KEYS[2], 'over', over, 'gone', table.concat(lines, '\n'))
  end
  keep(0, kept)
end

local what, lease = ARGV[1], ARGV[2]
local held = call('GET', KEYS[1])
local known = call('HMGET', KEYS[2], 'fence', 'who', 'kept', 'over', 'gone')
local fence, who = tonumber(known[1] or 0), read_who(known[2])
local mine = held == lease

if what == 'free' then
  -- Not what a later attempt of the same lease has got.
  local later = mine and who.attempt > tonumber(ARGV[3])
  mine = mine and not later
  if mine then
    call('DEL', KEYS[1])
  end
  if not later then
    call('ZREM', LONG_KEY, lease)
  end
  return { mine and 'yes' or 'no', now_us, fence }
elseif what == 'end' then
  call('ZREM', LONG_KEY, lease)
  local reason = reason_of(known[4], known[5], lease)
  if mine then
    call('DEL', KEYS[1])
  end
  if not reason then
    bury(known[4], known[5], lease, ARGV[3], known[3])
  end
  return { mine and 'yes' or reason and 'gone' or 'no', now_us, mine and fence or reason }
elseif what == 'break' then
  mine = held and (mine or string.sub(redis.sha1hex(held), 1, 32) == lease)
  if mine then
    call('DEL', KEYS[1])
    call('ZREM', LONG_KEY, held)
    bury(known[4], known[5], lease, ARGV[3], known[3])
  end
  return { mine and 'yes' or 'no', now_us, fence }
end

local no = abstention()
if what == 'extend' and (not no or no[1] == 'rests') then
  -- Also if it is not held here: others may extend it.
  note_length(tonumber(ARGV[3]))
  if not reason_of(known[4], known[5], lease) then
    note_long(tonumber(ARGV[3]), lease)
  end
end
if no then
  return no
end
-- In its last millisecond a key is still there, although its time is over.
if not mine or call('PTTL', KEYS[1]) <= 0 then
  local reason = reason_of(known[4], known[5], lease)
  return { reason and 'gone' or 'no', now_us, reason }
elseif what == 'store' then
  if who.attempt ~= tonumber(ARGV[3]) then
    return { 'no', now_us }
  end
  fence = math.max(fence, tonumber(ARGV[4]))
  call('HSET', KEYS[2], 'fence', string.format('%.0f', fence))
else
  local ttl, detached = tonumber(ARGV[3]), who.detached
  if ARGV[4] == '-' then
    detached = '1'
  elseif ARGV[4] ~= '' then
    -- A ticket is good for the first who comes, who may ask again.
    local owner = lease .. ARGV[4]
    if who.lease ~= lease or (detached ~= '1' and call('HGET', KEYS[2], 'owner') ~= owner) then
      return { 'gone', now_us, '"adopted"' }
    end
    detached = '0'
    call('HSET', KEYS[2], 'owner', owner)
  end
  -- Its end only moves forward: this may have been overtaken by a longer one. What is left is not
  -- more than it lasted before, also if the clock has gone back.
  local left = call('PTTL', KEYS[1])
  ttl = math.max(ttl, who.lease == lease and math.min(left, who.ttl) or left)
  call('PEXPIRE', KEYS[1], ttl)
  if who.lease == lease then
    call('HSET', KEYS[2], 'who',
      string.format('%s%s%.0f:%.0f:%s', lease, detached, who.attempt, ttl, who.about))
  end
  keep(ttl, known[3])
end
return { 'yes', now_us, fence }
