-- Looks at one lock, or at this node, and lets it vote.
--
-- ARGV  1 'lock' or 'node'; to let a fresh node vote also:
--       2 how long it rests    3 which of its lives is meant

if ARGV[1] == 'lock' then
  local held = call('GET', KEYS[1])
  local fence = tonumber(call('HGET', KEYS[2], 'fence') or 0)
  return { held and 'held' or 'free', now_us, held and describe(held) or false, fence }
end
if is_marked() then
  return { 'marked', now_us, math.max(longest, long_left()), math.max(tonumber(mark[2] or 0) - now, 0) }
end
-- A life begins when a node is first seen to have forgotten its locks, and is forgotten with the next
-- ones. So whoever was slow to let it in cannot mean a later one.
local this = run()
local life = call('HGET', KEYS[3], 'life')
if not life or string.sub(life, 1, #this) ~= this then
  life = string.format('%s%.0f', this, now_us)
  call('HSET', KEYS[3], 'life', life)
end
if ARGV[3] ~= life then
  local age = now - math.floor(tonumber(string.sub(life, #this + 1)) / 1000)
  return { 'blank', now_us, life, math.max(age, 0), math.max(longest, long_left()) }
end
local rest = tonumber(ARGV[2])
call('HSET', KEYS[3], 'run', this, 'saved', stamp,
  'rest', string.format('%.0f', now + rest))
call('HDEL', KEYS[3], 'life')
return { 'marked', now_us, math.max(longest, long_left()), rest }
