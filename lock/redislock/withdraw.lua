-- Takes a contender out of the queue of a fair lock; follows queue.lua.
-- KEYS: lock, queue, alive. ARGV: nonce, how to publish.
dequeue(KEYS[2], KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  wake(ARGV[2], KEYS[1], KEYS[2], KEYS[3])
end
return 1
