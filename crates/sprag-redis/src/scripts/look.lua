
-- Looks at one lock and changes nothing.

local function wait_json(wait)
  return common_json(wait) .. ',"arrived_ms":' .. whole(wait.arrived) .. ',"priority":'
    .. whole(wait.priority) .. ',"ticket":' .. whole(wait.ticket) .. '}'
end

local function gone_json(gone)
  return '{"lease":"' .. gone.lease .. '","loss":' .. gone.loss .. '}'
end

local waiters = {}
for _, member in ipairs(call('ZRANGE', KEYS[4], 0, -1)) do
  local waiting = string.sub(member, 18)
  if waiting ~= record.entrant then
    waiters[#waiters + 1] = stored_wait(waiting)
  end
end
if not intact then
  record.holders = {}
end
return string.format(
  '{"now_us":%.0f,"foreign":%s,"record":{"version":0,"fence":%.0f,"tickets":%.0f,%s"holders":%s,'
    .. '"waiters":%s,"gone":%s%s}}',
  now_us, foreign and hold_json(foreign) or 'null', record.fence, record.tickets,
  record.limit and string.format('"limit":%.0f,', record.limit) or '',
  list_json(record.holders, hold_json), list_json(waiters, wait_json), list_json(record.gone, gone_json),
  record.heir and string.format(',"heir":{"lease":"%s","fence":%.0f}', record.heir.lease, record.heir.fence)
    or ''
)
