-- Prolongs the lock of a nonce, and adds a member to it if one is named.
-- KEYS: lock, and mark of the member if there is one. ARGV: nonce, TTL in ms, and
-- perhaps a member.
-- Returns 1, or 0 if the nonce does not have the lock. Never creates it.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'joined')
if held[1] ~= ARGV[1] then
  return 0
end
if ARGV[3] then
  if redis.call('EXISTS', KEYS[2]) == 1 then
    return redis.error_reply('ERR this member has left before it arrived')
  end
  if not held[2] then -- until then the nonce was the only member
    redis.call('HSET', KEYS[1], 'joined', '', 'm:' .. ARGV[1], '')
  end
  redis.call('HSET', KEYS[1], 'm:' .. ARGV[3], '')
end
-- Another member may count on a longer TTL.
if not (held[2] or ARGV[3]) or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
