-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark of the member, and if it is fair: queue, alive. ARGV: nonce, how to
-- publish, and the member if it joined.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.

local held = redis.pcall('HMGET', KEYS[1], 'nonce', 'awaited', 'joined')
local has = not held.err and held[1] == ARGV[1]
local member
if has and held[3] then
  member = 'm:' .. (ARGV[3] or ARGV[1])
  has = redis.call('HEXISTS', KEYS[1], member) == 1
elseif has and ARGV[3] then
  has = false
end
local again = has and 1 or redis.call('EXISTS', KEYS[2])

-- The last one out frees the lock. That comes before the mark, which a server without
-- memory would refuse as the first write of a script.
-- Its fields: nonce, token, holder, joined, this member, and perhaps awaited.
local last = has and not (held[3] and redis.call('HLEN', KEYS[1]) > (held[2] and 6 or 5))
if last then
  redis.call('DEL', KEYS[1])
elseif has then
  redis.call('HDEL', KEYS[1], member)
end
-- The mark says for 10 s that this member is out, whatever comes late: its own release
-- again, from a client that missed the reply, is no loss; its acquisition, when
-- the release has overtaken it, is refused.
redis.call('SET', KEYS[2], '', 'PX', 10000)
if not last then
  return again
end
if not held[2] then
  return 1
end
if not KEYS[3] then
  -- It may be forbidden, or unknown to the server; then those who wait find out by
  -- asking.
  redis.pcall(ARGV[2], KEYS[1], '')
  return 1
end
