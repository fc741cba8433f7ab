-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark of the member, queue, alive. ARGV: nonce, member, life of the
-- mark in ms, how to publish.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.

local member = 'm:' .. ARGV[2]
local held = redis.pcall('HMGET', KEYS[1], 'nonce', member, 'joined', 'queued')
local has = not held.err and held[1] == ARGV[1] and held[2]
local again = has or redis.call('EXISTS', KEYS[2])

-- The mark says that this member is out, whatever comes late: its own release
-- again, from a client that missed the reply, is no loss; its acquisition, when
-- the release has overtaken it, is refused.
redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
if not has then
  return again
end

-- nonce, token, holder, this member, and perhaps the two flags.
if held[3] and redis.call('HLEN', KEYS[1]) > (held[4] and 6 or 5) then
  redis.call('HDEL', KEYS[1], member)
  return 1
end
redis.call('DEL', KEYS[1])
if not held[4] then
  -- It may be forbidden, or unknown to the server; then those who wait find out by
  -- asking.
  redis.pcall(ARGV[4], KEYS[1], '')
  return 1
end
