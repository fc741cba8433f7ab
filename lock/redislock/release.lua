-- The usual release; follows publish.lua or spublish.lua. notes.lua and next.lua come
-- after it.
-- KEYS: lock, counter. ARGV: nonce, and if the TTL is a long one, ms for which to
-- remember it.
-- Returns 1, or 0 if it is for leave.lua to say.

-- For the rest of the lock's TTL, or for less, its value says who had it last, so that the release
-- again, from a client that missed the reply, is no loss, and the acquisition, coming
-- late, is refused. It is one command where to look first would take two: what was
-- there comes back, and goes back if it was no lock of this nonce.
local mine = ARGV[1] .. '\n'
local old = redis.call('SET', KEYS[1], 'fencing free ' .. mine, 'XX', 'GET', 'KEEPTTL')
if not old then
  return 0
end
local state = string.sub(old, 14, 13 + #mine) == mine and string.sub(old, 9, 12)
if ARGV[2] and ARGV[2] ~= '' and (state == 'held' or state == 'want') then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if state == 'held' then
  return 1
end
if state ~= 'want' then
  redis.call('SET', KEYS[1], old, 'KEEPTTL')
  return state == 'free' and 1 or 0
end

