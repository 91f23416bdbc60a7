-- Looks at one lock, or lets this node vote.
--
-- ARGV  1 'lock' or 'node'; for a node also:
--       2 how long it rests if it is fresh; -1 to leave it as it is

if ARGV[1] == 'lock' then
  local held = call('GET', KEYS[1])
  local fence = tonumber(call('HGET', KEYS[2], 'fence') or 0)
  return { held and 'held' or 'free', now_us, held and describe(held) or false, fence }
end
if is_marked() then
  return { 'marked', now_us, longest, math.max(tonumber(mark[2] or 0) - now, 0) }
end
local rest = tonumber(ARGV[2])
if rest < 0 then
  return { 'fresh', now_us, 0, 0 }
end
call('HSET', KEYS[3], 'run', run(), 'saved', stamp,
  'rest', string.format('%.0f', now + rest))
return { 'marked', now_us, 0, rest }
