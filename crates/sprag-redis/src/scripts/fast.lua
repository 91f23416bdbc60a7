
-- What most calls are: one exclusive holder, nobody or only such waiting. Each of these writes
-- what the machine in lock.lua would write; whatever is not plainly so falls through to it, within
-- the same call. They avoid calls, long strings and the clock: a call of Redis costs a microsecond, and
-- five where the server has slept.
--
-- `take` is an acquire that is exclusive and pushes nobody aside, `keep` a renewal that binds the
-- lease to nothing new.

-- A lock that was taken more often stays on the list of names while it is free.
local OFTEN = 8

if command == 'take' then
  read_clock()
  local numbers = call('HGET', KEYS[2], 'n')
  if numbers and #numbers >= SHORTEST then
    local format, fence, tickets, keep, _, _, _, _, kind, listed, odd, place, waiters, _, recent =
      struct.unpack(NUMBERS, numbers)
    local ttl = tonumber(ARGV[4])
    if kind == FREE and waiters == 0 and format == FORMAT and now <= tonumber(ARGV[5])
      and now_us > fence and now + ttl + DAY <= keep
      and not string.find(recent, string.sub(lease, -8), 1, true)
      and call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[4]) then
      if listed == 0 and KEYS[7] then
        call('ZADD', KEYS[7], '0', name)
      end
      numbers = struct.pack(NUMBERS, FORMAT, now_us, tickets + 1, keep, now, ttl, 0, 0, ONE, 1, odd,
        place, 0, lease, #recent, recent)
      call('HSET', KEYS[2], 'n', numbers, 'h', ARGV[6])
      call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', lease, 'f', now_us, 'k', '+',
        'a', '0', 'm', '"exclusive"', 'h', ARGV[6])
      return now_us
    end
  end
elseif command == 'release' and call('GET', KEYS[1]) == lease then
  -- The plain key is there, so the lease has not ended: no clock is needed.
  local fields = call('HMGET', KEYS[2], 'n', 'h', 'w')
  local numbers, text, first = fields[1], fields[2], fields[3]
  if numbers and #numbers >= SHORTEST then
    local format, fence, tickets, keep, renewed, ttl, soonest, behind, kind, listed, odd, place, waiters,
      holder, recent = struct.unpack(NUMBERS, numbers)
    if kind == ONE and format == FORMAT and holder == lease and odd < MAX_GONE then
      local next_lease, next_ttl, next_text, channel, waited, ticket
      if waiters > 0 then
        read_clock()
        -- Nobody's patience is over, and the fence can be the time.
        local usual = now_us > fence and now < soonest
        if usual and behind > 0 then
          -- This holder was the last one that was prepared.
          tidy(behind - 1, lease)
          first = first_in_line()
        end
        if usual and first then
          local mode, _, _, its_ttl, _, arrived, priority, its_ticket, size, at =
            struct.unpack(WAIT, first, 33)
          if mode == EXCLUSIVE and now + its_ttl + DAY <= keep then
            next_lease, next_ttl, ticket = string.sub(first, 1, 32), its_ttl, its_ticket
            channel, next_text = string.sub(first, at, at + size - 1), string.sub(first, at + size)
            waited = priority == FORCED and 0 or math.max(now - arrived, 0)
            -- The first in line has it from now on; unless memory is full, see lock.lua.
            if redis.pcall('SET', KEYS[1], next_lease, 'PXAT', now + next_ttl).err then
              next_lease = nil
            end
          end
        end
      end
      if waiters == 0 or next_lease then
        if #recent == 8 * MAX_GONE then
          recent = string.sub(recent, 1, 8 * odd) .. string.sub(recent, 8 * odd + 9)
        end
        recent = recent .. string.sub(lease, -8)
        if next_lease then
          numbers = struct.pack(NUMBERS, FORMAT, now_us, tickets, keep, now, next_ttl, soonest, ticket + 1,
            ONE, listed, odd, (place + 1) % 8, waiters - 1, next_lease, #recent, recent)
          call('HSET', KEYS[2], 'n', numbers, 'g' .. place, lease, 'h', next_text)
          local message = next_lease .. ':' .. string.format('%.0f', now_us)
          call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', lease, 'f', fence, 's', renewed,
            'h', text, '>', message, 'a', waited, 'i', next_text)
          -- Who waits in the process that asks is told by the answer: that is faster than a message,
          -- and if it is lost the waiter looks by itself.
          if channel == ARGV[4] then
            return message
          end
          call('PUBLISH', channel, message)
          return 0
        end
        call('DEL', KEYS[1])
        if behind > 0 then
          tidy(behind - 1, lease)
        end
        if tickets <= OFTEN and KEYS[7] then
          call('ZREM', KEYS[7], name)
          listed = 0
        end
        numbers = struct.pack(NUMBERS, FORMAT, fence, tickets, keep, renewed, ttl, 0, 0, FREE, listed, odd,
          (place + 1) % 8, 0, lease, #recent, recent)
        call('HSET', KEYS[2], 'n', numbers, 'g' .. place, lease)
        call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', lease, 'f', fence, 'k',
          '"released"', 's', renewed, 'm', '"exclusive"', 'h', text)
        return 0
      end
    end
  end
elseif command == 'keep' and call('GET', KEYS[1]) == lease then
  local numbers = call('HGET', KEYS[2], 'n')
  if numbers and #numbers >= SHORTEST then
    local format, fence, tickets, keep, _, _, soonest, behind, kind, listed, odd, place, waiters, holder,
      recent = struct.unpack(NUMBERS, numbers)
    local ttl = tonumber(ARGV[4])
    read_clock()
    if kind == ONE and waiters == 0 and format == FORMAT and holder == lease
      and now + ttl + DAY <= keep then
      call('PEXPIRE', KEYS[1], ARGV[4])
      numbers = struct.pack(NUMBERS, FORMAT, fence, tickets, keep, now, ttl, soonest, behind, ONE, listed,
        odd, place, 0, lease, #recent, recent)
      call('HSET', KEYS[2], 'n', numbers)
      return string.format('%.0f %.0f', fence, now_us)
    end
  end
end
