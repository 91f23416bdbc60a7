-- Adds to the trail what only a client knows.
--
-- KEYS  1 the trail    2 its counter        ARGV  the entries as JSON

for _, entry in ipairs(ARGV) do
  local place = string.format('%.0f-0', redis.call('INCR', KEYS[2]))
  redis.call('XADD', KEYS[1], 'MAXLEN', '=', 10000, place, 'entry', entry)
end
return #ARGV
