-- Read before every other script: the time, the record, and what the plain key says about it.
--
-- KEYS  1 the plain key    2 the record    3 waiters by lease, and channels by 'c' .. lease
--       4 the queue, by virtual arrival    5 waiters by the end of their patience
--       6 names in use    7 the trail    8 its counter
-- ARGV  1 the command as JSON    2 the lock's name    3 the channel of the process that asks
--
-- The plain key decides: it holds the lease of the exclusive holder, or the marker while readers
-- or permit holders have the lock. If it is not what the record says, somebody deleted or took it,
-- and the holders in the record have lost the lock.

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

local MARKER = 'sprag:shared'
local MAX_FENCE = 9007199254740991

-- Numbers are written in full: cjson would round them to 14 digits.
local function encode(value)
  local kind = type(value)
  if kind == 'string' then
    return cjson.encode(value)
  elseif kind == 'number' then
    return string.format('%.0f', value)
  elseif kind == 'boolean' then
    return tostring(value)
  end
  local parts = {}
  for name, part in pairs(value) do
    parts[#parts + 1] = cjson.encode(name) .. ':' .. encode(part)
  end
  return '{' .. table.concat(parts, ',') .. '}'
end

local function encode_list(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = encode(list[i])
  end
  return '[' .. table.concat(parts, ',') .. ']'
end

local function expires(lease)
  return lease.renewed_ms + lease.ttl_ms
end

local function has_fields(value, needed, optional)
  if type(value) ~= 'table' then
    return false
  end
  for name, part in pairs(value) do
    local kind = needed[name] or optional[name]
    if kind ~= 'any' and type(part) ~= kind then
      return false
    end
  end
  for name in pairs(needed) do
    if value[name] == nil then
      return false
    end
  end
  return true
end

local RECORD = {
  version = 'number', fence = 'number', tickets = 'number',
  holders = 'table', waiters = 'table', gone = 'table',
}
local HOLD = {
  lease = 'string', party = 'string', mode = 'any', fence = 'number', ttl_ms = 'number',
  renewed_ms = 'number', holder = 'table',
}
local HOLD_OPTIONAL = {
  session = 'string', upgrading = 'boolean', fixed = 'boolean', took_over = 'boolean',
}

-- Reads the record; the second result says what is wrong with it.
local function read_record(text)
  local understood, document = pcall(cjson.decode, text)
  if not understood or type(document) ~= 'table' then
    return nil, 'the record is damaged: it is not JSON'
  elseif type(document.format) ~= 'number' or document.format < 1 then
    return nil, 'the record is damaged: it has no format'
  elseif document.format > 1 then
    return nil, string.format('the record has format %.0f and this version of sprag reads up to '
      .. '1: upgrade sprag here', document.format)
  end
  local record = document.record
  if not has_fields(record, RECORD, { limit = 'number' }) then
    return nil, 'the record is damaged: it has other fields than a record'
  end
  for _, hold in ipairs(record.holders) do
    if not has_fields(hold, HOLD, HOLD_OPTIONAL) or hold.fence > record.fence then
      return nil, 'the record is damaged: a holder cannot be right'
    elseif hold.mode == 'exclusive' and #record.holders > 1 then
      return nil, 'the record cannot be right: an exclusive holder is not alone'
    end
  end
  for _, gone in ipairs(record.gone) do
    if not has_fields(gone, { lease = 'string', loss = 'any' }, {}) then
      return nil, 'the record is damaged: a lost lease cannot be right'
    end
  end
  return record
end

-- What the plain key has to be for these holders, and until when.
local function mirror(holders)
  local value, last = nil, 0
  for _, hold in ipairs(holders) do
    value = hold.mode == 'exclusive' and hold.lease or MARKER
    last = math.max(last, expires(hold))
  end
  return value, last
end

-- The holder of a plain key that is not ours. Its lease and fence stand for the value, so that it
-- can be named and broken; a real fence is never so small.
local function stranger(value)
  local left = redis.call('PTTL', KEYS[1])
  local digest = redis.sha1hex(value)
  return {
    lease = string.sub(digest, 1, 32), party = string.sub(digest, 1, 32), mode = 'exclusive',
    fence = tonumber(string.sub(digest, 1, 8), 16) + 1, renewed_ms = now,
    ttl_ms = left >= 0 and left or 366 * 24 * 3600000, fixed = true,
    holder = { worker_id = 'another program (not sprag)', node_id = 'unknown' },
  }
end

local text = redis.call('GET', KEYS[2])
local record, problem
if text then
  record, problem = read_record(text)
else
  record = { version = 0, fence = 0, tickets = 0, holders = {}, waiters = {}, gone = {} }
end
if problem then
  return redis.error_reply('SPRAGCORRUPT ' .. problem)
end

local plain = redis.call('GET', KEYS[1])
local intact = (plain or nil) == mirror(record.holders)
if not intact and not plain and #record.holders > 0 then
  -- Redis forgets a key when its time is over; that is no loss of state.
  local _, last = mirror(record.holders)
  intact = last <= now
end
local foreign = not intact and plain and stranger(plain) or nil
