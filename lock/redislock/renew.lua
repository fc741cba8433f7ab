-- Prolongs the lock of a nonce, and adds a member to it if one is named.
-- KEYS: lock. ARGV: nonce, TTL in ms, member or ''.
-- Returns 1, or 0 if the nonce does not have the lock. Never creates it.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then
  return 0
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], 'm:' .. ARGV[3], '')
end
-- nonce, token, holder and one member: nobody else counts on a longer TTL.
if redis.call('HLEN', KEYS[1]) <= 4 or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
