-- Takes a contender out of the queue of a fair lock; follows publish.lua or
-- spublish.lua, and queue.lua.
-- KEYS: lock, queue, alive. ARGV: nonce.
dequeue(KEYS[2], KEYS[3], ARGV[1])
local value = redis.pcall('GET', KEYS[1])
if not value or type(value) == 'string' and string.sub(value, 1, 13) == 'fencing free ' then
  wake(publish, KEYS[1], KEYS[2], KEYS[3])
end
return 1
