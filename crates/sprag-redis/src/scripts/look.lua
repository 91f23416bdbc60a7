-- Looks at one lock and changes nothing.

local waiters = {}
for i, member in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  waiters[i] = redis.call('HGET', KEYS[3], string.sub(member, 18))
end
if not intact then
  record.holders = {}
end
return string.format(
  '{"now_us":%.0f,"fence":%.0f,"limit":%s,"holders":%s,"waiters":[%s],"foreign":%s}',
  now_us, record.fence, record.limit and encode(record.limit) or 'null',
  encode_list(record.holders), table.concat(waiters, ','), foreign and encode(foreign) or 'null'
)
