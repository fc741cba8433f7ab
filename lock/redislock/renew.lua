-- Prolongs the lock of a nonce that nobody shares.
-- KEYS: lock. ARGV: nonce, TTL in ms.
-- Returns 1, 0 if the nonce does not have the lock, or -1 if it is for join.lua to do.
-- Never creates a lock.
local mine = ARGV[1] .. '\n'
local value = redis.call('GET', KEYS[1])
local state = value and string.sub(value, 1, 13)
if not value or state == 'fencing free ' or string.sub(value, 14, 13 + #mine) ~= mine then
  return 0
end
if state == 'fencing join ' then
  return -1
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
