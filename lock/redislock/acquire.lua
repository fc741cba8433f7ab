-- Takes the lock, or says who has it; follows counter.lua.
-- KEYS: lock, counter. ARGV: nonce, holder, TTL in ms, after, greatest jump,
-- 'shared' if another library may keep a string under the lock's key.
-- Returns {1, token}, {0, holder, remaining ms} or {-1, counter} for a jump.

local held = redis.pcall('HMGET', KEYS[1], 'nonce', 'token', 'holder')
if held.err then
  if ARGV[6] == 'shared' and string.find(held.err, 'WRONGTYPE', 1, true) then
    return {0, 'a user of another library', redis.call('PTTL', KEYS[1])}
  end
  return held
end
if held[1] and held[1] ~= ARGV[1] then
  return {0, held[3], redis.call('PTTL', KEYS[1])}
end

local token = held[2]
if not token or not greater(token, ARGV[4]) then
  -- What can fail comes before the first write to the lock: scripts do not roll
  -- back.
  local refusal
  token, refusal = advance(KEYS[2], ARGV[4], ARGV[5])
  if not token then
    return refusal
  end
  redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'token', token, 'holder', ARGV[2], 'm:' .. ARGV[1], '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, token}
