-- Takes back what one try of an acquisition got here. A later try of the same nonce
-- keeps its lock, and so does one that had it before.
-- KEYS: lock, mark of the try. ARGV: nonce, try, life of the mark in ms.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'try')
local has = held[1] == ARGV[1] and held[2] == ARGV[2]
if has then
  redis.call('DEL', KEYS[1])
end
local marked = redis.pcall('SET', KEYS[2], '', 'PX', ARGV[3]) -- as in release.lua
if marked.err and not string.find(marked.err, 'OOM', 1, true) then
  return marked
end
return {has and 'yes' or 'no'}
