-- The usual release; follows publish.lua or spublish.lua.
-- KEYS: lock. ARGV: nonce.
-- Returns 1, or 0 if it is for leave.lua to say.

-- For the rest of the lock's TTL its value says who had it last, so that the release
-- again, from a client that missed the reply, is no loss, and the acquisition, coming
-- late, is refused. It is one command where to look first would take two: what was
-- there comes back, and goes back if it was no lock of this nonce.
local mine = ARGV[1] .. '\n'
local old = redis.call('SET', KEYS[1], 'fencing free ' .. mine, 'XX', 'GET', 'KEEPTTL')
if old and string.sub(old, 14, 13 + #mine) == mine then
  local state = string.sub(old, 9, 12)
  if state == 'want' or state == 'many' then
    -- It may be forbidden, or unknown to the server; then those who wait find out by
    -- asking.
    redis.pcall(publish, KEYS[1], '')
  end
  if state ~= 'join' then
    return 1
  end
end
if old then
  redis.call('SET', KEYS[1], old, 'KEEPTTL')
end
return 0
