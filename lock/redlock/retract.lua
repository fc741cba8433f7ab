-- Takes back what one try of an acquisition got here. A later try of the same nonce
-- keeps its lock, and so does one that had it before.
-- KEYS: lock, mark of the try. ARGV: nonce, try, life of the mark in ms.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'try')
redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return {'no'}
end
redis.call('DEL', KEYS[1])
return {'yes'}
