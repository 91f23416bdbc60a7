-- One command on one lock: reap, command, promote. A port of `record::apply`, line by line, with
-- the queue in keys of its own so that a long queue costs nobody anything.

local KEEP_FREE_MS = 24 * 3600000
local BOOST_MS = 10000
local MAX_GONE = 8
local TRAIL_LENGTH = 10000
local FORCED = 127

local command = cjson.decode(ARGV[1])
local changed, exhausted, thief = false, false, nil
local events = {}
-- A waiter that is not in the queue's keys yet.
local staged
local used_before = #record.holders > 0 or redis.call('EXISTS', KEYS[4]) == 1

local function answer(outcome)
  return string.format('{"now_us":%.0f,"outcome":%s}', now_us, outcome)
end

if command['do'] == 'acquire' and command.not_after_ms and now > command.not_after_ms then
  return answer('{"refused":"late"}')
end

-- ---- the queue -----------------------------------------------------------------------------

local function member(wait)
  return string.format('%016.0f:%s', wait.ticket, wait.lease)
end

local function arrival(wait)
  return wait.arrived_ms - wait.priority * BOOST_MS
end

local function before(one, other)
  local a, b = arrival(one), arrival(other)
  return a < b or (a == b and one.ticket < other.ticket)
end

local function stored_wait(lease)
  local found = redis.call('HGET', KEYS[3], lease)
  return found and cjson.decode(found) or nil
end

local function waiting_count()
  return redis.call('ZCARD', KEYS[4]) + (staged and 1 or 0)
end

local function stored_at(place)
  local found = redis.call('ZRANGE', KEYS[4], place, place)[1]
  return found and stored_wait(string.sub(found, 18)) or nil
end

local function head()
  local first = stored_at(0)
  if staged and (not first or before(staged, first)) then
    return staged
  end
  return first
end

local function write_wait(wait)
  redis.call('HSET', KEYS[3], wait.lease, encode(wait), 'c' .. wait.lease, ARGV[3])
  redis.call('ZADD', KEYS[4], string.format('%.0f', arrival(wait)), member(wait))
  redis.call('ZADD', KEYS[5], string.format('%.0f', expires(wait)), wait.lease)
end

local function remove_wait(wait)
  if staged and staged.lease == wait.lease then
    staged = nil
    return
  end
  redis.call('HDEL', KEYS[3], wait.lease)
  redis.call('ZREM', KEYS[4], member(wait))
  redis.call('ZREM', KEYS[5], wait.lease)
end

-- ---- who holds, who is gone ----------------------------------------------------------------

local function permits(mode)
  return type(mode) == 'table' and mode.permits.count or 0
end

local function coexist(held, asked)
  if type(held) == 'table' then
    return type(asked) == 'table'
  elseif held == 'shared' then
    return asked == 'shared' or asked == 'upgradable'
  end
  return held == 'upgradable' and asked == 'shared'
end

local function find_hold(lease)
  for index, hold in ipairs(record.holders) do
    if hold.lease == lease then
      return hold, index
    end
  end
end

local function gone_reason(lease)
  for _, gone in ipairs(record.gone) do
    if gone.lease == lease then
      return gone.loss
    end
  end
end

local function tell(kind, hold, after_ms)
  events[#events + 1] = {
    kind = kind, lease = hold.lease, session = hold.session, fence = hold.fence, mode = hold.mode,
    holder = hold.holder, after_ms = math.max(after_ms, 0),
  }
end

local function bury(hold, loss)
  changed = true
  if hold ~= foreign then
    if #record.gone == MAX_GONE then
      local forgotten = 1
      for index, gone in ipairs(record.gone) do
        if gone.loss == 'released' then
          forgotten = index
          break
        end
      end
      table.remove(record.gone, forgotten)
    end
    record.gone[#record.gone + 1] = { lease = hold.lease, loss = loss }
  end
  tell({ gone = loss }, hold, now - hold.renewed_ms)
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
    remove_holders(function(hold) return expires(hold) <= now and 'expired' or 'state_lost' end)
  end
  if foreign then
    record.holders[1] = foreign
  end
  remove_holders(function(hold)
    return hold ~= foreign and expires(hold) <= now and 'expired' or nil
  end)
  local over = {}
  for i, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now))) do
    over[i] = stored_wait(lease)
  end
  table.sort(over, before)
  for _, wait in ipairs(over) do
    bury_wait(wait, 'expired')
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

local function has_room_for(mode)
  local taken = 0
  for _, hold in ipairs(record.holders) do
    if not coexist(hold.mode, mode) then
      return false
    end
    taken = taken + permits(hold.mode)
  end
  local wanted = permits(mode)
  return wanted == 0 or taken + wanted <= (record.limit or 0)
end

local function grant(wait)
  local fence = record.fence
  if wait.mode == 'exclusive' or type(wait.mode) == 'table' or fence == 0 then
    fence = next_fence()
  end
  if not fence then
    return false
  end
  remove_wait(wait)
  local hold = {
    lease = wait.lease, session = wait.session, party = wait.party, mode = wait.mode,
    fence = fence, ttl_ms = wait.ttl_ms, renewed_ms = now, fixed = wait.fixed or nil,
    took_over = thief == wait.lease or nil, holder = wait.holder,
  }
  tell('granted', hold, wait.priority == FORCED and 0 or now - wait.arrived_ms)
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
  tell('granted', hold, 0)
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
    elseif exclusive then
      return
    else
      local first = head()
      if not first or not has_room_for(first.mode) or not grant(first) then
        return
      end
    end
  end
end

-- ---- outcomes ------------------------------------------------------------------------------

local function granted(hold)
  return { granted = { fence = hold.fence, mode = hold.mode, took_over = hold.took_over or false } }
end

local function gone(lease)
  return { gone = gone_reason(lease) or 'state_lost' }
end

local function outcome_of_waiting(lease)
  local hold = find_hold(lease)
  if hold then
    return granted(hold)
  end
  local wait = stored_wait(lease)
  if wait then
    return { queued = { ahead = redis.call('ZRANK', KEYS[4], member(wait)) } }
  end
  return gone(lease)
end

-- ---- commands ------------------------------------------------------------------------------

local function set_limit(of)
  record.limit = of
  changed = true
  for _, found in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    local wait = stored_wait(string.sub(found, 18))
    if permits(wait.mode) > of then
      bury_wait(wait, 'limit_lowered')
    end
  end
end

-- Whether the request can be served at all; else why not.
local function admit(acquire)
  if acquire.queue and waiting_count() >= acquire.max_waiters then
    return 'queue_full'
  end
  if type(acquire.mode) ~= 'table' then
    return nil
  end
  local count, of = acquire.mode.permits.count, acquire.mode.permits.of
  if count == 0 or count > of then
    return 'bad_permits'
  elseif record.limit and record.limit ~= of and not acquire.resize then
    return { limit_mismatch = record.limit }
  elseif record.limit ~= of then
    set_limit(of)
  end
end

local function may_go(hold, steal)
  if steal == 'force' then
    return true
  elseif steal.overdue then
    local patience = hold.fixed and hold.ttl_ms or math.floor(hold.ttl_ms / 3) * 2
    return now - hold.renewed_ms >= math.max(steal.overdue, patience)
  end
  return steal.seen == record.version
end

local function push_aside(acquire)
  local steal = acquire.steal
  if not steal then
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
  local stolen = { stolen = { by = acquire.holder.worker_id, forced = steal == 'force' } }
  remove_holders(function(hold) return in_the_way(hold) and stolen or nil end)
  while not has_room_for(acquire.mode) do
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
    lease = acquire.lease, session = acquire.session, party = acquire.party, mode = acquire.mode,
    ttl_ms = acquire.ttl_ms, renewed_ms = now, arrived_ms = forced and 0 or now,
    priority = forced and FORCED or acquire.priority, ticket = record.tickets,
    fixed = acquire.fixed or nil, holder = acquire.holder,
  }
  record.tickets = record.tickets + 1
  changed = true
end

local commands = {}

function commands.acquire(acquire)
  if find_hold(acquire.lease) then
    promote()
    return outcome_of_waiting(acquire.lease)
  end
  local waits = stored_wait(acquire.lease)
  if not waits then
    local loss = gone_reason(acquire.lease)
    local refusal = not loss and admit(acquire)
    if loss or refusal then
      promote()
      return loss and { gone = loss } or { refused = refusal }
    end
  end
  push_aside(acquire)
  if waits then
    promote()
    return outcome_of_waiting(acquire.lease)
  end
  local changed_before, told = changed, #events
  enqueue(acquire)
  promote()
  if staged and not acquire.queue then
    -- It only tried, so it leaves no trace: nothing to write.
    staged = nil
    record.tickets = record.tickets - 1
    changed = changed_before or #events > told
    return 'held'
  elseif staged then
    local wait = staged
    staged = nil
    write_wait(wait)
  end
  return outcome_of_waiting(acquire.lease)
end

function commands.renew(renew)
  local hold, wait = find_hold(renew.lease), nil
  if hold then
    hold.renewed_ms, hold.ttl_ms = now, renew.ttl_ms
    if renew.rebind ~= nil then
      hold.session = renew.rebind or nil
      hold.fixed = not renew.rebind or nil
      hold.party = renew.rebind and hold.party or renew.lease
    end
    changed = true
  else
    wait = stored_wait(renew.lease)
  end
  if wait then
    wait.renewed_ms = now
    redis.call('HSET', KEYS[3], wait.lease, encode(wait))
    redis.call('ZADD', KEYS[5], string.format('%.0f', expires(wait)), wait.lease)
    changed = true
  end
  promote()
  return outcome_of_waiting(renew.lease)
end

function commands.convert(convert)
  local hold = find_hold(convert.lease)
  if not hold then
    promote()
    return gone(convert.lease)
  end
  local from, to, alone, outcome = hold.mode, convert.to, #record.holders == 1, nil
  if from == to and type(to) ~= 'table' then
    outcome = nil
  elseif (from == 'exclusive' and (to == 'upgradable' or to == 'shared'))
    or (from == 'upgradable' and to == 'shared') then
    hold.mode, hold.upgrading, changed = to, nil, true
  elseif from == 'upgradable' and to == 'exclusive' and (convert.queue or alone) then
    changed = changed or not hold.upgrading
    hold.upgrading = true
  elseif from == 'shared' and to == 'exclusive' and alone then
    hold.upgrading, changed = true, true
  elseif (from == 'upgradable' or from == 'shared') and to == 'exclusive' then
    outcome = 'held'
  else
    outcome = { refused = { bad_conversion = from } }
  end
  promote()
  if outcome then
    return outcome
  elseif hold.upgrading then
    redis.call('HSET', KEYS[3], 'c' .. hold.lease, ARGV[3])
    redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', expires(hold) + KEEP_FREE_MS))
    return { queued = { ahead = 0 } }
  end
  return granted(hold)
end

function commands.release(release)
  local freed = false
  remove_holders(function(hold)
    freed = freed or hold.lease == release.lease
    return hold.lease == release.lease and 'released' or nil
  end)
  local wait = stored_wait(release.lease)
  if wait then
    bury_wait(wait, 'released')
    freed = true
  end
  promote()
  return freed and 'done' or gone(release.lease)
end

function commands.withdraw(withdraw)
  local wait = stored_wait(withdraw.lease)
  if wait then
    bury_wait(wait, 'released')
  end
  local hold = find_hold(withdraw.lease)
  if hold and hold.upgrading then
    hold.upgrading, changed = nil, true
  end
  promote()
  return 'done'
end

function commands.evict(evict)
  local broken = {}
  local loss = { broken = { by = evict.by, reason = evict.reason, fence = evict.fence } }
  remove_holders(function(hold)
    if hold.fence == evict.fence then
      broken[#broken + 1] = hold.holder
      return loss
    end
  end)
  promote()
  return { evicted = broken }
end

function commands.reap()
  promote()
  return 'done'
end

-- ---- write ---------------------------------------------------------------------------------

-- An unused semaphore may come back with another number of permits.
local function forget_limit()
  for _, hold in ipairs(record.holders) do
    if permits(hold.mode) > 0 then
      return
    end
  end
  for place = 0, waiting_count() - 1 do
    if permits(stored_at(place).mode) > 0 then
      return
    end
  end
  record.limit = nil
end

local function record_text()
  return string.format(
    '{"format":1,"record":{"version":%.0f,"fence":%.0f,"tickets":%.0f,%s"holders":%s,"waiters":[],'
      .. '"gone":%s}}',
    record.version, record.fence, record.tickets,
    record.limit and string.format('"limit":%.0f,', record.limit) or '',
    encode_list(record.holders), encode_list(record.gone)
  )
end

local function write_plain(foreign_stays)
  local value, last = mirror(record.holders)
  if value then
    redis.call('SET', KEYS[1], value, 'PXAT', string.format('%.0f', last))
  elseif plain and not foreign_stays then
    redis.call('DEL', KEYS[1])
  end
  return last
end

local function write()
  local foreign_stays = foreign and record.holders[1] == foreign
  local shown = record.holders
  if foreign_stays then
    record.holders = {}
  end
  record.version = record.version + 1
  if record.limit then
    forget_limit()
  end
  local last = math.max(write_plain(foreign_stays), now)
  local patient = redis.call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
  if patient then
    last = math.max(last, tonumber(patient))
  end
  local keep = string.format('%.0f', last + KEEP_FREE_MS)
  text = record_text()
  redis.call('SET', KEYS[2], text, 'PXAT', keep)
  for key = 3, 5 do
    redis.call('PEXPIREAT', KEYS[key], keep)
  end
  local used = #record.holders > 0 or patient
  if used and not used_before then
    redis.call('ZADD', KEYS[6], 0, ARGV[2])
  elseif not used and used_before then
    redis.call('ZREM', KEYS[6], ARGV[2])
  end
  record.holders = shown
end

-- Wakes those to whom something happened, and writes the trail.
local function publish()
  for _, event in ipairs(events) do
    local field = 'c' .. event.lease
    local channel = redis.call('HGET', KEYS[3], field)
    if channel then
      redis.call('PUBLISH', channel, string.format('%s:%.0f', event.lease, event.fence))
      redis.call('HDEL', KEYS[3], field)
    end
    if event.fence > 0 then
      local place = string.format('%.0f-0', redis.call('INCR', KEYS[8]))
      redis.call('XADD', KEYS[7], 'MAXLEN', '=', TRAIL_LENGTH, place,
        'at', string.format('%.0f', now), 'name', ARGV[2], 'event', encode(event))
    end
  end
end

if command['do'] ~= 'acquire' then
  -- The first write of a script may be refused when memory is full; one that only removes never
  -- is, and then the others pass too: who gives a lock back must not be refused.
  redis.call('HDEL', KEYS[3], '-')
end
reap()
local outcome = commands[command['do']](command)
if exhausted and type(outcome) == 'table' and outcome.queued or exhausted and outcome == 'held' then
  outcome = { refused = 'fence_exhausted' }
end
if changed then
  write()
end
publish()
if command['do'] == 'reap' and #record.holders == 0 and waiting_count() == 0 then
  redis.call('ZREM', KEYS[6], ARGV[2])
end

local written
if type(outcome) == 'table' and outcome.evicted then
  written = '{"evicted":' .. encode_list(outcome.evicted) .. '}'
else
  written = encode(outcome)
end
if outcome == 'held' or type(outcome) == 'table' and outcome.queued then
  return string.format('{"now_us":%.0f,"outcome":%s,"waiting":%.0f,"holders":%s}', now_us, written,
    waiting_count(), encode_list(record.holders))
end
return answer(written)
