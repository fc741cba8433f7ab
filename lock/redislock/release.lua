-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark. ARGV: nonce, member, life of the mark in ms.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] or redis.call('HDEL', KEYS[1], 'm:' .. ARGV[2]) == 0 then
  -- A client that missed the reply asks again by itself. Without the mark its
  -- own release would look like a loss.
  if redis.call('GET', KEYS[2]) == ARGV[2] then
    return 1
  end
  return 0
end
if redis.call('HLEN', KEYS[1]) == 3 then -- nonce, token, holder: no member
  redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
