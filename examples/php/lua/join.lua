-- Prolongs the lock of a nonce for all who share it, and makes one more share it.
-- KEYS: lock, members, and mark of the member if there is one. ARGV: nonce, TTL in ms,
-- and perhaps a member.
-- Returns 1, or 0 if the nonce does not have the lock. Never creates it.
local mine = ARGV[1] .. '\n'
local value = redis.call('GET', KEYS[1])
local state = value and string.sub(value, 1, 13)
if not value or state == 'fencing free ' or string.sub(value, 14, 13 + #mine) ~= mine then
  return 0
end
if ARGV[3] then
  if redis.call('EXISTS', KEYS[3]) == 1 then
    return redis.error_reply('ERR this member has left before it arrived')
  end
  if state ~= 'fencing join ' then -- until then the nonce was the only member
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[2], ARGV[1], '')
    redis.call('SETRANGE', KEYS[1], 8, 'join')
  end
  redis.call('HSET', KEYS[2], ARGV[3], '')
end
local ttl = math.max(redis.call('PTTL', KEYS[1]), ARGV[2]) -- another member may count on a longer one
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl)
return 1
