-- Phase one of an acquisition: takes this node's lock, without a token, or says why
-- not; follows memory.lua.
-- KEYS: lock, fence, waiting, mark of the nonce, mark of the try. ARGV: nonce, holder,
-- TTL in ms, try, restart delay in ms.
-- Returns {'granted', counter, memory, token promised earlier or ''},
-- {'held', counter, memory, holder, remaining ms, 'promised' if it has a token, 'yields'
-- if its nonce is the greater one}, {'waiting', counter, memory, remaining ms} or {'spent'}.

-- The release of this nonce, or the end of this try, has overtaken it.
if redis.call('EXISTS', KEYS[4], KEYS[5]) > 0 then
  return {'spent'}
end
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token', 'holder', 'try')
if not held[1] and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the key of the lock has something that is no lock')
end
local counter, state, detail = memory(KEYS[2], KEYS[3], ARGV[5])
if not counter then
  return redis.error_reply('WRONGTYPE the key of the counter has something that is no counter')
end
if held[1] and held[1] ~= ARGV[1] then
  return {'held', counter, state, held[3], tostring(redis.call('PTTL', KEYS[1])), held[2] and 'promised' or '', ARGV[1] < held[1] and 'yields' or ''}
end
if state == 'waiting' then
  return {'waiting', counter, state, tostring(detail)}
end
if not held[1] then
  -- base: every token that this node has promised for the resource is at most that.
  redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'holder', ARGV[2], 'base', counter)
end
-- An earlier try that comes late, and is then retracted, must not take it along.
if not held[2] and tonumber(ARGV[4]) > tonumber(held[4] or 0) then
  redis.call('HSET', KEYS[1], 'try', ARGV[4])
end
if state == 'fresh' then
  redis.call('HSET', KEYS[1], 'run', detail)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'granted', counter, state, held[2] or ''}
