
-- One command on one lock: reap, command, promote. A port of `record::apply`, line by line, with
-- the queue in keys of its own so that a long queue costs nobody anything. It knows nothing of
-- versions: nobody compares them, because each call is one step.

local BOOST = 10000
local NOBODY = string.rep('0', 32)

local changed, exhausted, thief = false, false, nil
-- The waiter that was let in last.
local let_in
local events = {}
-- A waiter that is not in the queue's keys yet.
local staged
local queue_before

local function answer(outcome)
  return string.format('{"now_us":%.0f,"outcome":%s}', now_us, outcome)
end

-- A clock that went back would let leases last longer by as much: they count from now.
for _, hold in ipairs(record.holders) do
  if hold.renewed > now then
    hold.renewed, changed = now, true
  end
end

local wishes
if command == 'take' or command == 'acquire' then
  local mode, count, of, queue, priority, resize, most, steal, by =
    string.match(ARGV[7], '^(%l+) (%d+) (%d+) (%d) (%-?%d+) (%d) (%d+) (%w+) (.*)$')
  wishes = {
    lease = lease, mode = mode, count = tonumber(count), of = tonumber(of), queue = queue == '1',
    priority = tonumber(priority), steal = steal, resize = resize == '1', most = tonumber(most),
    channel = ARGV[8], by = by, ttl = tonumber(ARGV[4]), text = ARGV[6],
  }
  if now > tonumber(ARGV[5]) then
    return answer('{"refused":"late"}')
  end
else
  -- The first write of a script may be refused when memory is full; one that only removes never
  -- is, and then the others pass too: who gives a lock back must not be refused.
  call('HDEL', KEYS[3], '-')
end
local heir = record.heir
local heir_waits = heir and stored_wait(heir.lease)
if not heir_waits then
  record.heir = nil
elseif heir.last > now + heir_waits.ttl then
  -- For the same reason as above.
  heir.last, changed = now + heir_waits.ttl, true
end
if record.entrant then
  if wishes then
    -- For the same reason who asks for a lock begins with a write that may be refused.
    call('HSET', KEYS[2], 'h', record.holders[1].text)
  end
  tidy(record.entrant_ticket, record.entrant)
  changed = true
end
queue_before = call('ZCARD', KEYS[4])

-- ---- the queue -----------------------------------------------------------------------------

local function member(wait)
  return string.format('%016.0f:%s', wait.ticket, wait.lease)
end

local function arrival(wait)
  return wait.arrived - wait.priority * BOOST
end

local function before(one, other)
  local a, b = arrival(one), arrival(other)
  return a < b or (a == b and one.ticket < other.ticket)
end

local function waiting_count()
  return call('ZCARD', KEYS[4]) + (staged and 1 or 0)
end

local function stored_at(place)
  local found = call('ZRANGE', KEYS[4], place, place)[1]
  return found and stored_wait(string.sub(found, 18)) or nil
end

-- Who is promised the lock may be inside already: nobody goes past it.
local function head()
  if record.heir then
    return stored_wait(record.heir.lease)
  end
  local first = stored_at(0)
  if staged and (not first or before(staged, first)) then
    return staged
  end
  return first
end

local function write_wait(wait)
  local numbers = struct.pack(WAIT, WAIT_BYTES[wait.mode], wait.count, wait.of, wait.ttl, wait.renewed,
    wait.arrived, wait.priority, wait.ticket, #wait.channel)
  call('HSET', KEYS[3], wait.lease, numbers .. wait.channel .. wait.text)
  call('ZADD', KEYS[4], whole(arrival(wait)), member(wait))
  call('ZADD', KEYS[5], whole(expires(wait)), wait.lease)
end

local function remove_wait(wait)
  if record.heir and record.heir.lease == wait.lease then
    record.heir = nil
  end
  if staged and staged.lease == wait.lease then
    staged = nil
    return
  end
  call('HDEL', KEYS[3], wait.lease)
  call('ZREM', KEYS[4], member(wait))
  call('ZREM', KEYS[5], wait.lease)
end

-- ---- who holds, who is gone ----------------------------------------------------------------

local function coexist(held, asked)
  if held == 'permits' then
    return asked == 'permits'
  elseif held == 'shared' then
    return asked == 'shared' or asked == 'upgradable'
  end
  return held == 'upgradable' and asked == 'shared'
end

local function find_hold(wanted)
  for index, hold in ipairs(record.holders) do
    if hold.lease == wanted then
      return hold, index
    end
  end
end

local function gone_reason(wanted)
  for _, gone in ipairs(record.gone) do
    if gone.lease == wanted then
      return gone.loss
    end
  end
end

-- `loss` is nothing if the lease was granted.
local function tell(loss, hold, after)
  events[#events + 1] = {
    loss = loss, lease = hold.lease, fence = hold.fence, mode = hold.mode, count = hold.count,
    of = hold.of, text = hold.text, channel = hold.channel, after = math.max(after, 0),
  }
  hold.channel = nil
end

local function bury(hold, loss)
  changed = true
  if hold ~= foreign then
    if #record.gone == MAX_GONE then
      -- Those given back come first.
      table.remove(record.gone, 1)
    end
    local place = #record.gone + 1
    if loss == '"released"' then
      place = 1
      while record.gone[place] and record.gone[place].loss == loss do
        place = place + 1
      end
    end
    table.insert(record.gone, place, { lease = hold.lease, loss = loss })
  end
  tell(loss, hold, now - hold.renewed)
end

local function remove_holders(loss_of)
  local index = 1
  while index <= #record.holders do
    local hold = record.holders[index]
    local loss = loss_of(hold)
    if loss then
      table.remove(record.holders, index)
      bury(hold, loss)
    else
      index = index + 1
    end
  end
end

local function bury_wait(wait, loss)
  remove_wait(wait)
  wait.fence = 0
  bury(wait, loss)
end

local function reap()
  if not intact then
    remove_holders(function(hold)
      return expires(hold) <= now and '"expired"' or '"state_lost"'
    end)
  end
  if foreign then
    record.holders[1] = foreign
  end
  remove_holders(function(hold)
    return hold ~= foreign and expires(hold) <= now and '"expired"' or nil
  end)
  if queue_before == 0 then
    return
  end
  local over = {}
  for _, wanted in ipairs(call('ZRANGEBYSCORE', KEYS[5], '-inf', whole(now))) do
    -- An heir may be inside already, by a question that is no sign of life here.
    if not record.heir or record.heir.lease ~= wanted then
      over[#over + 1] = stored_wait(wanted)
    end
  end
  table.sort(over, before)
  for _, wait in ipairs(over) do
    bury_wait(wait, '"expired"')
  end
end

-- ---- promote -------------------------------------------------------------------------------

local function next_fence()
  local fence = math.max(record.fence + 1, now_us)
  if fence > MAX_FENCE then
    exhausted = true
    return nil
  end
  record.fence = fence
  return fence
end

local function has_room_for(mode, count)
  local taken = 0
  for _, hold in ipairs(record.holders) do
    if not coexist(hold.mode, mode) then
      return false
    end
    taken = taken + (hold.count or 0)
  end
  return mode ~= 'permits' or count == 0 or taken + count <= (record.limit or 0)
end

local function grant(wait)
  local fence = record.fence
  if record.heir and record.heir.lease == wait.lease and record.heir.fence == fence then
    -- A promised fence is good as long as it is the last one: an upgrade may have had another.
    fence = record.heir.fence
  elseif wait.mode == 'exclusive' or wait.mode == 'permits' or fence == 0 then
    fence = next_fence()
  end
  if not fence then
    return false
  end
  remove_wait(wait)
  local permits = wait.mode == 'permits'
  local hold = {
    lease = wait.lease, mode = wait.mode, count = permits and wait.count or nil,
    of = permits and wait.of or nil, fence = fence, ttl = wait.ttl, renewed = now,
    took_over = thief == wait.lease or nil, text = wait.text, channel = wait.channel,
  }
  tell(nil, hold, wait.priority == FORCED and 0 or now - wait.arrived)
  let_in = { priority = wait.priority, channel = wait.channel, event = events[#events] }
  record.holders[#record.holders + 1] = hold
  changed = true
  return true
end

local function grant_upgrade(hold)
  local fence = next_fence()
  if not fence then
    return false
  end
  hold.mode, hold.upgrading, hold.fence = 'exclusive', nil, fence
  tell(nil, hold, 0)
  changed = true
  return true
end

local function promote()
  while true do
    local upgrading, exclusive
    for _, hold in ipairs(record.holders) do
      upgrading = upgrading or (hold.upgrading and hold)
      exclusive = exclusive or hold.mode == 'exclusive'
    end
    if upgrading then
      if #record.holders > 1 or not grant_upgrade(upgrading) then
        return
      end
    elseif exclusive or (queue_before == 0 and not staged) then
      return
    else
      local first = head()
      if not first or not has_room_for(first.mode, first.count) or not grant(first) then
        return
      end
    end
  end
end

-- ---- outcomes ------------------------------------------------------------------------------

local function granted(hold)
  return string.format('{"granted":{"fence":%.0f,"mode":%s,"took_over":%s}}', hold.fence,
    mode_json(hold.mode, hold.count, hold.of), hold.took_over and 'true' or 'false')
end

local function gone(wanted)
  return '{"gone":' .. (gone_reason(wanted) or '"state_lost"') .. '}'
end

-- The second result is whether the lease has to wait.
local function outcome_of_waiting(wanted)
  local hold = find_hold(wanted)
  if hold then
    return granted(hold)
  end
  local wait = stored_wait(wanted)
  if wait then
    return string.format('{"queued":{"ahead":%.0f}}', call('ZRANK', KEYS[4], member(wait))), true
  end
  return gone(wanted)
end

-- ---- commands ------------------------------------------------------------------------------

local function set_limit(of)
  record.limit = of
  changed = true
  for _, found in ipairs(call('ZRANGE', KEYS[4], 0, -1)) do
    local wait = stored_wait(string.sub(found, 18))
    if wait.mode == 'permits' and wait.count > of then
      bury_wait(wait, '"limit_lowered"')
    end
  end
end

-- Whether the request can be served at all; else why not.
local function admit(acquire)
  if acquire.queue and waiting_count() >= acquire.most then
    return '"queue_full"'
  elseif acquire.mode ~= 'permits' then
    return nil
  elseif acquire.count == 0 or acquire.count > acquire.of then
    return '"bad_permits"'
  elseif record.limit and record.limit ~= acquire.of and not acquire.resize then
    return string.format('{"limit_mismatch":%.0f}', record.limit)
  elseif record.limit ~= acquire.of then
    set_limit(acquire.of)
  end
end

local function may_go(hold, steal)
  if steal == 'force' then
    return true
  end
  local patience = is_fixed(hold.text) and hold.ttl or math.floor(hold.ttl / 3) * 2
  return now - hold.renewed >= math.max(tonumber(steal), patience)
end

local function push_aside(acquire)
  local steal = acquire.steal
  if steal == 'no' then
    return
  end
  local function in_the_way(hold)
    return not coexist(hold.mode, acquire.mode) or hold.upgrading
  end
  for _, hold in ipairs(record.holders) do
    if in_the_way(hold) and not may_go(hold, steal) then
      return
    end
  end
  local told = #events
  local stolen = string.format('{"stolen":{"by":%s,"forced":%s}}', acquire.by,
    steal == 'force' and 'true' or 'false')
  if steal == 'force' and record.heir then
    -- It may be inside: its predecessor lets it in before that is written here.
    bury_wait(stored_wait(record.heir.lease), stolen)
  end
  remove_holders(function(hold) return in_the_way(hold) and stolen or nil end)
  while not has_room_for(acquire.mode, acquire.count) do
    local oldest
    for _, hold in ipairs(record.holders) do
      if may_go(hold, steal) and (not oldest or hold.fence < oldest) then
        oldest = hold.fence
      end
    end
    if not oldest then
      break
    end
    remove_holders(function(hold) return hold.fence == oldest and stolen or nil end)
  end
  if #events > told then
    thief = acquire.lease
  end
end

local function enqueue(acquire)
  local forced = acquire.steal == 'force'
  staged = {
    lease = acquire.lease, mode = acquire.mode, count = acquire.count, of = acquire.of,
    ttl = acquire.ttl, renewed = now, arrived = forced and 0 or now,
    priority = forced and FORCED or acquire.priority, ticket = record.tickets, text = acquire.text,
  }
  record.tickets = record.tickets + 1
  changed = true
end

-- A waiter is told "not yet", and counts its lease from its question. If it is the heir, and is let in
-- before that is written here, the plain key has to last as long.
local function put_off(wait)
  if record.heir and record.heir.lease == wait.lease then
    record.heir.last, changed = now + wait.ttl, true
  end
end

-- Promises the lock to the first in line, if it waits in the process that was just let in: that will
-- let it in before its release is written. See `Record::promise`.
local function promise()
  local hold, first = record.holders[1], stored_at(0)
  if record.heir or #record.holders ~= 1 or hold.mode ~= 'exclusive' or not first
    or first.mode ~= 'exclusive' or first.priority < let_in.priority or first.channel ~= let_in.channel
    or not has_session(first.text) then
    return
  end
  local fence = math.max(record.fence + 1, now_us)
  if fence <= MAX_FENCE then
    record.fence = fence
    record.heir = { lease = first.lease, fence = fence, last = now + first.ttl }
    let_in.event.heir = ':' .. first.lease .. ':' .. whole(fence)
  end
end

local commands = {}

function commands.acquire()
  local acquire = wishes
  if find_hold(lease) then
    promote()
    return outcome_of_waiting(lease)
  end
  local waits = stored_wait(lease)
  if not waits then
    local loss = gone_reason(lease)
    local refusal = not loss and admit(acquire)
    if loss or refusal then
      promote()
      return loss and '{"gone":' .. loss .. '}' or '{"refused":' .. refusal .. '}'
    end
  end
  push_aside(acquire)
  if waits then
    put_off(waits)
    promote()
    return outcome_of_waiting(lease)
  end
  local changed_before, told = changed, #events
  enqueue(acquire)
  promote()
  if staged and not acquire.queue then
    -- It only tried, so it leaves no trace: nothing to write.
    staged = nil
    record.tickets = record.tickets - 1
    changed = changed_before or #events > told
    return '"held"', true
  elseif staged then
    local wait = staged
    staged, wait.channel = nil, acquire.channel
    write_wait(wait)
  end
  return outcome_of_waiting(lease)
end

commands.take = commands.acquire

function commands.renew()
  local ttl, session = tonumber(ARGV[4]), ARGV[5]
  local hold, wait = find_hold(lease), nil
  if hold then
    local owner = string.sub(hold.text, 1, 32)
    if session and session ~= '-' and owner ~= session and owner ~= string.rep('-', 32) then
      -- A ticket is good for the first who comes, who may ask again.
      promote()
      return '{"gone":"adopted"}'
    end
    hold.renewed, hold.ttl = now, longer(ttl, hold.renewed, hold.ttl)
    if session == '-' then
      hold.text = string.rep('-', 32) .. lease .. '1' .. string.sub(hold.text, 66)
    elseif session then
      hold.text = session .. string.sub(hold.text, 33, 64) .. '0' .. string.sub(hold.text, 66)
    end
    changed = true
  else
    wait = stored_wait(lease)
  end
  if wait then
    wait.renewed = now
    write_wait(wait)
    put_off(wait)
    changed = true
  end
  promote()
  return outcome_of_waiting(lease)
end

commands.keep = commands.renew

function commands.convert()
  local hold = find_hold(lease)
  if not hold then
    promote()
    return gone(lease)
  end
  local from, to, alone, outcome, wait = hold.mode, ARGV[4], #record.holders == 1, nil, false
  if hold.fence ~= tonumber(ARGV[7]) or (from == to and to ~= 'permits') then
    outcome = nil
  elseif (from == 'exclusive' and (to == 'upgradable' or to == 'shared'))
    or (from == 'upgradable' and to == 'shared') then
    hold.mode, hold.upgrading, changed = to, nil, true
  elseif from == 'upgradable' and to == 'exclusive' and (ARGV[5] == '1' or alone) then
    changed = changed or not hold.upgrading
    hold.upgrading = true
  elseif from == 'shared' and to == 'exclusive' and alone then
    hold.upgrading, changed = true, true
  elseif (from == 'upgradable' or from == 'shared') and to == 'exclusive' then
    outcome, wait = '"held"', true
  else
    outcome = '{"refused":{"bad_conversion":' .. mode_json(from, hold.count, hold.of) .. '}}'
  end
  promote()
  if outcome then
    return outcome, wait
  elseif hold.upgrading then
    changed = changed or hold.channel ~= ARGV[6]
    hold.channel = ARGV[6]
    return '{"queued":{"ahead":0}}', true
  end
  return granted(hold)
end

function commands.release()
  local freed = false
  remove_holders(function(hold)
    freed = freed or hold.lease == lease
    return hold.lease == lease and '"released"' or nil
  end)
  local wait = stored_wait(lease)
  if wait then
    bury_wait(wait, '"released"')
    freed = true
  end
  promote()
  if let_in then
    promise()
  end
  return freed and '"done"' or gone(lease)
end

function commands.withdraw()
  local wait = stored_wait(lease)
  if wait then
    bury_wait(wait, '"released"')
  end
  local hold = find_hold(lease)
  if hold and hold.upgrading then
    hold.upgrading, hold.channel, changed = nil, nil, true
  end
  promote()
  return '"done"'
end

function commands.evict()
  local broken = {}
  local fence = tonumber(ARGV[4])
  remove_holders(function(hold)
    if hold.fence == fence then
      broken[#broken + 1] = string.sub(hold.text, 66)
      return ARGV[5]
    end
  end)
  promote()
  return '{"evicted":[' .. table.concat(broken, ',') .. ']}'
end

function commands.reap()
  promote()
  return '"done"'
end

-- ---- write ---------------------------------------------------------------------------------

-- An unused semaphore may come back with another number of permits.
local function forget_limit(waiting)
  for _, hold in ipairs(record.holders) do
    if hold.mode == 'permits' then
      return
    end
  end
  for place = 0, waiting - 1 do
    if stored_at(place).mode == 'permits' then
      return
    end
  end
  record.limit = nil
end

local function write_record(waiting, keep)
  local given_back, recent, others, fields = '', '', {}, {}
  local place = 0
  for _, gone in ipairs(record.gone) do
    if gone.loss == '"released"' then
      fields[#fields + 1] = 'g' .. place
      fields[#fields + 1] = gone.lease
      given_back = given_back .. string.sub(gone.lease, -8)
      place = place + 1
    else
      recent = recent .. string.sub(gone.lease, -8)
      others[#others + 1] = gone.lease
      others[#others + 1] = gone.loss
    end
  end
  recent = recent .. given_back
  local first, kind = record.holders[1], FREE
  if #record.holders == 1 and first.mode == 'exclusive' and not first.took_over
    and (first.fence == record.fence or record.heir) and not record.limit then
    kind = ONE
    fields[#fields + 1] = 'h'
    fields[#fields + 1] = first.text
  elseif first or record.limit then
    kind = MANY
    fields[#fields + 1] = 'x'
    fields[#fields + 1] = cmsgpack.pack({ holders = record.holders, limit = record.limit })
  end
  if #others > 0 then
    fields[#fields + 1] = 'o'
    fields[#fields + 1] = cmsgpack.pack(others)
  end
  local soonest = 0
  if waiting > 0 then
    soonest = tonumber(call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2])
    local ready = first_in_line()
    if ready then
      fields[#fields + 1] = 'w'
      fields[#fields + 1] = ready
    end
  end
  if record.heir then
    fields[#fields + 1] = 'p'
    fields[#fields + 1] = struct.pack(PROMISE, kind == ONE and first.fence or 0, record.heir.fence,
      record.heir.last, record.heir.lease)
  end
  local one = kind == ONE and first or { lease = NOBODY, renewed = 0, ttl = 0 }
  local numbers = struct.pack(NUMBERS, FORMAT, record.fence, record.tickets, keep, one.renewed, one.ttl,
    soonest, 0, kind, record.listed, #others / 2, place % 8,
    record.heir and 1 or 0, waiting, one.lease, #recent, recent)
  call('DEL', KEYS[2])
  call('HSET', KEYS[2], 'n', numbers, unpack(fields))
  call('PEXPIREAT', KEYS[2], whole(keep))
end

local function write_plain(foreign_stays)
  local value, last = mirror(record)
  if value then
    call('SET', KEYS[1], value, 'PXAT', whole(last))
  elseif plain and not foreign_stays then
    call('DEL', KEYS[1])
  end
  return last
end

local function write()
  local foreign_stays = foreign and record.holders[1] == foreign
  local shown = record.holders
  if foreign_stays then
    record.holders = {}
  end
  local waiting = waiting_count()
  if record.limit then
    forget_limit(waiting)
  end
  local last = math.max(write_plain(foreign_stays), now)
  if waiting > 0 then
    last = math.max(last, tonumber(call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]))
  end
  -- Twice as long as needed, so that the shortcuts need not set it each time.
  local keep = last + 2 * HOUR
  record.keep = keep
  if waiting > 0 then
    for key = 3, 5 do
      call('PEXPIREAT', KEYS[key], whole(keep))
    end
  end
  local used = #record.holders > 0 or waiting > 0
  if KEYS[7] and used and record.listed == 0 then
    call('ZADD', KEYS[7], '0', name)
    record.listed = 1
  elseif KEYS[7] and not used and record.listed == 1 then
    call('ZREM', KEYS[7], name)
    record.listed = 0
  end
  write_record(waiting, keep)
  record.holders = shown
end

-- Wakes those to whom something happened, and writes the trail.
local function publish()
  for _, event in ipairs(events) do
    if event.channel then
      local fence = event.loss and '0' or whole(event.fence)
      call('PUBLISH', event.channel, event.lease .. ':' .. fence .. (event.heir or ''))
    end
    if event.loss and (command == 'evict' or command == 'acquire')
      and (string.find(event.loss, '"stolen"', 1, true) or string.find(event.loss, '"broken"', 1, true)) then
      call('PUBLISH', ARGV[#ARGV], 'evicted ' .. event.lease)
    end
    if event.fence > 0 then
      call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', event.lease, 'f', event.fence,
        'k', event.loss or '+', 'a', event.after, 'm', mode_json(event.mode, event.count, event.of),
        'h', event.text)
    end
  end
  if #events > 0 and not KEYS[7] then
    -- The trail of one lock outlives its record by two days: people look at it later.
    call('PEXPIREAT', KEYS[6], whole(record.keep + 48 * HOUR))
  end
end

reap()
local outcome, waits = commands[command]()
if exhausted and waits then
  outcome, waits = '{"refused":"fence_exhausted"}', false
end
if command == 'reap' and KEYS[7] and #record.holders == 0 and waiting_count() == 0 then
  -- It is on the list because it was used often, or ended without anybody who took it off.
  changed = changed or record.listed == 1
  call('ZREM', KEYS[7], name)
end
if changed then
  write()
end
publish()
if not waits then
  return answer(outcome)
end
return string.format('{"now_us":%.0f,"outcome":%s,"waiting":%.0f,"holders":%s}', now_us, outcome,
  waiting_count(), list_json(record.holders, hold_json))
