-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark of the member. ARGV: nonce, member, life of the mark in ms.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.

-- The mark says that this member is out, whatever comes late: its own release
-- again, from a client that missed the reply, is no loss; its acquisition, when
-- the release has overtaken it, is refused.
local again = redis.call('EXISTS', KEYS[2])
redis.call('SET', KEYS[2], '', 'PX', ARGV[3])

local member = 'm:' .. ARGV[2]
local held = redis.pcall('HMGET', KEYS[1], 'nonce', member)
if held.err or held[1] ~= ARGV[1] or not held[2] then
  return again
end
if redis.call('HLEN', KEYS[1]) == 4 then -- nonce, token, holder and this member
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], member)
end
return 1
