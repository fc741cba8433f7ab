-- Phase two of an acquisition: the compare-and-set write-back of its token. Follows
-- memory.lua and the function greater.
-- KEYS: lock, fence. ARGV: nonce, token, '1' if the token is above all counters that
-- were read in this acquisition.
-- Returns {'accepted'}, {'refused', counter} or {'lost'}.
--
-- Compared is the counter as it was when the lock was taken: since then nobody else
-- could be promised a token of this resource here. Tokens of other resources, which
-- move the same counter, are no reason to refuse.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'base', 'token', 'run')
if held[1] ~= ARGV[1] then
  return {'lost'}
end
local counter = redis.call('HGET', KEYS[2], 'token') or '0'
if ARGV[2] ~= held[3] and not (greater(ARGV[2], held[2]) and greater(ARGV[2], held[3] or '0')) then
  return {'refused', counter}
end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
if greater(ARGV[2], counter) then
  redis.call('HSET', KEYS[2], 'token', ARGV[2])
end
-- With this token the node knows as much as those that it was read from, unless it
-- has been started again since.
if ARGV[3] == '1' and held[4] and held[4] == run_id() then
  redis.call('HSET', KEYS[2], 'run', held[4])
end
return {'accepted'}
