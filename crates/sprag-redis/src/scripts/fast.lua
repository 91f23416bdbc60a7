
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
    local format, fence, tickets, keep, _, _, _, _, kind, listed, odd, place, _, waiters, _, recent =
      struct.unpack(NUMBERS, numbers)
    local ttl = tonumber(ARGV[4])
    if kind == FREE and waiters == 0 and format == FORMAT and now <= tonumber(ARGV[5])
      and now_us > fence and now + ttl + HOUR <= keep
      and not string.find(recent, string.sub(lease, -8), 1, true)
      and call('SET', KEYS[1], lease, 'NX', 'PX', ARGV[4]) then
      if listed == 0 and KEYS[7] then
        call('ZADD', KEYS[7], '0', name)
      end
      numbers = struct.pack(NUMBERS, FORMAT, now_us, tickets + 1, keep, now, ttl, 0, 0, ONE, 1, odd,
        place, 0, 0, lease, #recent, recent)
      call('HSET', KEYS[2], 'n', numbers, 'h', ARGV[6])
      call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', lease, 'f', now_us, 'k', '+',
        'a', '0', 'm', '"exclusive"', 'h', ARGV[6])
      return now_us
    end
  end
elseif command == 'release' and call('GET', KEYS[1]) == lease then
  -- The plain key is there, so the lease has not ended: no clock is needed, unless somebody waits.
  local fields = call('HMGET', KEYS[2], 'n', 'h', 'w', 'p')
  local numbers, text, first, promise = fields[1], fields[2], fields[3], fields[4]
  if numbers and #numbers >= SHORTEST then
    local format, fence, tickets, keep, renewed, ttl, soonest, behind, kind, listed, odd, place, promised,
      waiters, holder, recent = struct.unpack(NUMBERS, numbers)
    if kind == ONE and format == FORMAT and holder == lease and odd < MAX_GONE then
      local own, heir, second = fence, nil, nil
      local next_lease, next_fence, next_ttl, next_text, channel, waited, ticket
      -- Whom the next one lets in.
      local its_heir, last_fence, heir_until
      if waiters > 0 then
        read_clock()
        -- Nobody's patience is over, nor the lease, which the plain key may outlast for the heir; and
        -- the fence can be the time.
        local usual = now_us > fence and now < soonest and now < renewed + ttl
        next_fence = now_us
        if promised == 1 and promise and #promise == PROMISE_SIZE then
          local of_holder, of_heir, _, whose = struct.unpack(PROMISE, promise)
          own, next_fence, heir = of_holder, of_heir, whose
          usual = usual and of_heir == fence
        end
        usual = usual and (promised == 0 or heir)
        if usual and behind > 0 then
          -- This holder was the last one that was prepared.
          tidy(behind - 1, lease)
        end
        if usual and (behind > 0 or waiters > 1) then
          first, second = first_two_in_line()
        end
        if usual and first and (not heir or heir == string.sub(first, 1, 32)) then
          local mode, _, _, its_ttl, _, arrived, priority, its_ticket, size, at =
            struct.unpack(WAIT, first, 33)
          local ends = now + its_ttl
          channel, next_text = string.sub(first, at, at + size - 1), string.sub(first, at + size)
          last_fence = next_fence
          if mode == EXCLUSIVE and second then
            -- The next one of the same process is promised the lock: see `promise` in lock.lua.
            local mode, _, _, ttl, _, _, its_priority, _, size, at = struct.unpack(WAIT, second, 33)
            if mode == EXCLUSIVE and its_priority >= priority and now_us < MAX_FENCE
              and string.sub(second, at, at + size - 1) == channel
              and has_session(string.sub(second, at + size)) then
              its_heir, last_fence = string.sub(second, 1, 32), math.max(next_fence + 1, now_us)
              heir_until = now + ttl
              ends = math.max(ends, heir_until)
            end
          end
          if mode == EXCLUSIVE and ends + HOUR <= keep then
            next_lease, next_ttl, ticket = string.sub(first, 1, 32), its_ttl, its_ticket
            waited = priority == FORCED and 0 or math.max(now - arrived, 0)
            -- The first in line has it from now on; unless memory is full, see lock.lua.
            if redis.pcall('SET', KEYS[1], next_lease, 'PXAT', ends).err then
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
          local message = next_lease .. ':' .. string.format('%.0f', next_fence)
          call('XADD', KEYS[6], 'MAXLEN', '~', TRAIL, '*', 'n', name, 'l', lease, 'f', own, 's', renewed,
            'h', text, '>', message, 'a', waited, 'i', next_text)
          numbers = struct.pack(NUMBERS, FORMAT, last_fence, tickets, keep, now, next_ttl, soonest,
            ticket + 1, ONE, listed, odd, (place + 1) % 8, its_heir and 1 or 0, waiters - 1, next_lease,
            #recent, recent)
          if its_heir then
            call('HSET', KEYS[2], 'n', numbers, 'g' .. place, lease, 'h', next_text, 'p',
              struct.pack(PROMISE, next_fence, last_fence, heir_until, its_heir))
            message = message .. ':' .. its_heir .. ':' .. string.format('%.0f', last_fence)
          else
            call('HSET', KEYS[2], 'n', numbers, 'g' .. place, lease, 'h', next_text)
          end
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
          (place + 1) % 8, 0, 0, lease, #recent, recent)
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
    local format, fence, tickets, keep, renewed, was, soonest, behind, kind, listed, odd, place, _, waiters,
      holder, recent = struct.unpack(NUMBERS, numbers)
    read_clock()
    local ttl = longer(tonumber(ARGV[4]), renewed, was)
    if kind == ONE and waiters == 0 and format == FORMAT and holder == lease
      and now + ttl + HOUR <= keep then
      call('PEXPIRE', KEYS[1], ttl)
      numbers = struct.pack(NUMBERS, FORMAT, fence, tickets, keep, now, ttl, soonest, behind, ONE, listed,
        odd, place, 0, 0, lease, #recent, recent)
      call('HSET', KEYS[2], 'n', numbers)
      return string.format('%.0f %.0f', fence, now_us)
    end
  end
end
