-- The usual release; follows publish.lua or spublish.lua.
-- KEYS: lock, counter. ARGV: nonce.
-- Returns 1, or 0 if it is for leave.lua to say. Grants the lock to the first of those
-- noted who lives, and publishes that: its nonce, token and number, how long ago it was
-- noted and for how long it has the lock, in ms.

-- For the rest of the lock's TTL its value says who had it last, so that the release
-- again, from a client that missed the reply, is no loss, and the acquisition, coming
-- late, is refused. It is one command where to look first would take two: what was
-- there comes back, and goes back if it was no lock of this nonce.
local mine = ARGV[1] .. '\n'
local old = redis.call('SET', KEYS[1], 'fencing free ' .. mine, 'XX', 'GET', 'KEEPTTL')
if old and string.sub(old, 14, 13 + #mine) == mine then
  local state = string.sub(old, 9, 12)
  if state == 'want' then
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local message, notes = '', string.match(old, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(.*)$')
    while notes ~= '' do
      local nonce, ttl, number, since, holder, others = string.match(notes, '^%?([^\t]*)\t(%d+)\t(%d*)\t(%d+)\t([^\n]*)\n(.*)$')
      local waited = now - since
      notes = others
      if number ~= '' and waited >= 0 and waited < (number == '0' and 1000 or 3000) then -- it lives
        local token = redis.call('INCR', KEYS[2])
        if token > 0 and token < 100000000000000 then
          -- For a short time, in case it does not: it renews.
          ttl = math.min(ttl, 2000)
          redis.call('SET', KEYS[1], 'fencing want ' .. nonce .. '\n' .. token .. '\n' .. holder .. '\n' .. mine .. notes, 'PX', ttl)
          message = nonce .. '\t' .. token .. '\t' .. number .. '\t' .. waited .. '\t' .. ttl
        else
          redis.call('DECR', KEYS[2])
        end
        break
      end
    end
    -- It may be forbidden, or unknown to the server; then those who wait find out by
    -- asking.
    redis.pcall(publish, KEYS[1], message)
  end
  if state ~= 'join' then
    return 1
  end
end
if old then
  redis.call('SET', KEYS[1], old, 'KEEPTTL')
end
return 0
