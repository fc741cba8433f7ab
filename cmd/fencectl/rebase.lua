-- Sets a counter that still has the value that was looked at, unless the lock is held.
-- KEYS: lock, counter. ARGV: the value, or '' if there was none; the new one.
local lock = redis.pcall('GET', KEYS[1])
if lock and (type(lock) ~= 'string' or string.sub(lock, 1, 13) ~= 'fencing free ') then
  return 'held'
end
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[1] then
  return 'moved'
end
redis.call('SET', KEYS[2], ARGV[2])
return 'set'
