-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark. ARGV: nonce, member, life of the mark in ms.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.
local member = 'm:' .. ARGV[2]
local held = redis.call('HMGET', KEYS[1], 'nonce', member)
if held[1] ~= ARGV[1] or not held[2] then
  -- A client that missed the reply asks again by itself. Without the mark its
  -- own release would look like a loss.
  if redis.call('GET', KEYS[2]) == ARGV[2] then
    return 1
  end
  return 0
end
if redis.call('HLEN', KEYS[1]) == 4 then -- nonce, token, holder and this member
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], member)
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
