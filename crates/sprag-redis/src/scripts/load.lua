
-- Reads the record, and what the plain key says about it.
--
-- The plain key decides: it holds the lease of the exclusive holder, or the marker while readers
-- or permit holders have the lock. If it is not what the record says, somebody deleted or took it,
-- and the holders in the record have lost the lock.

local MARKER = 'sprag:shared'
local MODES = { exclusive = true, shared = true, upgradable = true, permits = true }

local function expires(held)
  return held.renewed + held.ttl
end

-- Numbers are written in full: Lua would round them to 14 digits.
local function whole(number)
  return string.format('%.0f', number)
end

local function mode_json(mode, count, of)
  if mode == 'permits' then
    return string.format('{"permits":{"count":%.0f,"of":%.0f}}', count, of)
  end
  return '"' .. mode .. '"'
end

local function is_fixed(text)
  return string.byte(text, 65) == 49
end

-- The fields that holders and waiters have in common.
local function common_json(held)
  local text = held.text
  local session = string.sub(text, 1, 32)
  return '{"lease":"' .. held.lease .. '",'
    .. (has_session(text) and '"session":"' .. session .. '",' or '')
    .. '"party":"' .. string.sub(text, 33, 64) .. '","mode":' .. mode_json(held.mode, held.count, held.of)
    .. ',"ttl_ms":' .. whole(held.ttl) .. ',"renewed_ms":' .. whole(held.renewed)
    .. (is_fixed(text) and ',"fixed":true' or '') .. ',"holder":' .. string.sub(text, 66)
end

local function hold_json(hold)
  return common_json(hold) .. ',"fence":' .. whole(hold.fence)
    .. (hold.upgrading and ',"upgrading":true' or '')
    .. (hold.took_over and ',"took_over":true' or '') .. '}'
end

local function list_json(list, json)
  local parts = {}
  for i = 1, #list do
    parts[i] = json(list[i])
  end
  return '[' .. table.concat(parts, ',') .. ']'
end

local WAIT_MODES = { 'exclusive', 'shared', 'upgradable', 'permits' }
local WAIT_BYTES = { exclusive = EXCLUSIVE, shared = 2, upgradable = 3, permits = 4 }

local function stored_wait(of_lease)
  local found = call('HGET', KEYS[3], of_lease)
  if not found then
    return nil
  end
  local mode, count, of, ttl, renewed, arrived, priority, ticket, size, at =
    struct.unpack(WAIT, found)
  return {
    lease = of_lease, mode = WAIT_MODES[mode], count = count, of = of, ttl = ttl, renewed = renewed,
    arrived = arrived, priority = priority, ticket = ticket,
    channel = string.sub(found, at, at + size - 1), text = string.sub(found, at + size),
  }
end

local function corrupt(what)
  return redis.error_reply('SPRAGCORRUPT ' .. what)
end

-- The record as a table; the second result says what is wrong with it.
local function read_record()
  local fields = call('HMGET', KEYS[2], 'n', 'h', 'x', 'o', 'g0', 'g1', 'g2', 'g3', 'g4', 'g5', 'g6', 'g7',
    'p')
  local numbers = fields[1]
  local record = { fence = 0, tickets = 0, keep = 0, listed = 0, holders = {}, gone = {} }
  if not numbers then
    return record, call('EXISTS', KEYS[2]) == 1 and 'the record is damaged: it has no numbers' or nil
  elseif numbers == '' then
    return nil, 'the record is damaged: its numbers are missing'
  elseif string.byte(numbers) > FORMAT then
    return nil, string.format('the record has format %d and this version of sprag reads %d: upgrade '
      .. 'sprag here', string.byte(numbers), FORMAT)
  elseif string.byte(numbers) < FORMAT then
    return nil, string.format('the record has format %d, of an older sprag, and this version reads %d: '
      .. 'when nobody uses the lock, delete the key %s', string.byte(numbers), FORMAT, KEYS[2])
  elseif #numbers < SHORTEST or #numbers ~= SHORTEST + string.byte(numbers, SHORTEST) then
    return nil, 'the record is damaged: it is cut off'
  end
  local _, fence, tickets, keep, renewed, ttl, _, behind, kind, listed, odd, place, promised, _, holder,
    recent = struct.unpack(NUMBERS, numbers)
  record.fence, record.tickets, record.keep, record.listed = fence, tickets, keep, listed
  if behind > 0 then
    record.entrant, record.entrant_ticket = holder, behind - 1
  end
  local own = fence
  if promised == 1 then
    if not fields[13] or #fields[13] ~= PROMISE_SIZE then
      return nil, 'the record is damaged: its promise is missing'
    end
    local of_holder, of_heir, last, heir = struct.unpack(PROMISE, fields[13])
    if of_holder > fence or of_heir > fence then
      return nil, 'the record is damaged: its promise cannot be right'
    end
    own, record.heir = of_holder, { lease = heir, fence = of_heir, last = last }
  end
  local given_back = #recent / 8 - odd
  for i = place - given_back, place - 1 do
    local lease = fields[5 + i % 8]
    record.gone[#record.gone + 1] = lease and { lease = lease, loss = '"released"' } or nil
  end
  local others = fields[4] and cmsgpack.unpack(fields[4]) or {}
  for i = 1, #others, 2 do
    record.gone[#record.gone + 1] = { lease = others[i], loss = others[i + 1] }
  end
  if kind == ONE then
    record.holders[1] = {
      lease = holder, mode = 'exclusive', fence = own, renewed = renewed, ttl = ttl, text = fields[2],
    }
  elseif kind == MANY and fields[3] then
    local many = cmsgpack.unpack(fields[3])
    record.holders, record.limit = many.holders, many.limit
  elseif kind ~= FREE then
    return nil, 'the record is damaged: its holders are missing'
  end
  if #record.gone ~= given_back + odd then
    return nil, 'the record is damaged: lost leases are missing'
  end
  for _, hold in ipairs(record.holders) do
    if not MODES[hold.mode] or not hold.text or hold.fence > fence then
      return nil, 'the record is damaged: a holder cannot be right'
    elseif hold.mode == 'exclusive' and #record.holders > 1 then
      return nil, 'the record cannot be right: an exclusive holder is not alone'
    end
  end
  return record
end

-- What the plain key has to be for a record, and until when. An heir may be inside already, and longer
-- than the holder that it is written for: then a key that ended with the latter would let in another
-- program beside it.
local function mirror(record)
  local value, last = nil, record.heir and record.heir.last or 0
  for _, hold in ipairs(record.holders) do
    value = hold.mode == 'exclusive' and hold.lease or MARKER
    last = math.max(last, expires(hold))
  end
  return value, last
end

-- The holder of a plain key that is not ours. Its lease and fence stand for the value, so that it
-- can be named and broken; a real fence is never so small.
local function stranger(value)
  local left = call('PTTL', KEYS[1])
  local digest = redis.sha1hex(value)
  local id = string.sub(digest, 1, 32)
  return {
    lease = id, mode = 'exclusive', fence = tonumber(string.sub(digest, 1, 8), 16) + 1, renewed = now,
    ttl = left >= 0 and left or 366 * 24 * HOUR,
    text = string.rep('-', 32) .. id
      .. '1{"worker_id":"another program (not sprag)","node_id":"unknown"}',
  }
end

if not now then
  read_clock()
end
local record, problem = read_record()
if problem then
  return corrupt(problem)
end
local plain = call('GET', KEYS[1])
local intact = (plain or nil) == mirror(record)
if not intact and not plain and #record.holders > 0 then
  -- Redis forgets a key when its time is over; that is no loss of state. Within a call its clock
  -- stands still, so it may be a moment early.
  local _, last = mirror(record)
  intact = last <= now + 10
end
local foreign = not intact and plain and stranger(plain) or nil
