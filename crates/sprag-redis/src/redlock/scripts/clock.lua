local call = redis.call
-- What is known about a lock outlives it by so much, and by half of it at least: 'kept' says until
-- when, so that it is not put off each time.
local KEEP_FREE_MS = 24 * 3600000

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = (now_us - now_us % 1000) / 1000

