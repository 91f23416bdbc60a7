-- One vote for one attempt of a lease; see fast_take.lua for the arguments.

local lease, attempt, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local no = abstention()
if not no or no[1] == 'rests' then
  -- Also if it does not count here or comes too late: others may have granted it.
  note_length(ttl)
end
if no then
  return no
elseif now > tonumber(ARGV[4]) then
  return { 'late', now_us }
end
local known = call('HMGET', KEYS[2], 'fence', 'kept', 'over', 'gone')
local reason = reason_of(known[3], known[4], lease)
local free = not reason and call('SET', KEYS[1], lease, 'NX', 'PX', ttl)
local held = not free and call('GET', KEYS[1])
if held and held ~= lease then
  return { 'held', now_us, describe(held) }
elseif reason then
  return { 'gone', now_us, reason }
end
if held then
  -- An answer was lost, or an attempt was not freed. Counted from now on it is good for this one.
  local who = read_who(call('HGET', KEYS[2], 'who'))
  if attempt < who.attempt then
    return { 'late', now_us }
  elseif attempt > who.attempt then
    -- What was extended meanwhile stays so.
    call('PEXPIRE', KEYS[1], math.max(ttl, call('PTTL', KEYS[1])))
    call('HSET', KEYS[2], 'who', ARGV[6])
  end
  note_long(ttl, lease)
  return { 'yes', now_us, fenced and tonumber(known[1] or 0) or 0 }
end
note_long(ttl, lease)
local fence = enter(known[1])
local sure = keep(ttl, known[2]) - ttl - KEEP_FREE_MS / 2
-- Where it is noted one by one, each has to come by here.
if stamp ~= '' and ttl <= SHORT_MS then
  call('HSET', KEYS[2], 'seen', string.format('%010.0f%013.0f%s', stamp, sure, ARGV[3]))
end
return { 'yes', now_us, tonumber(fence) }
