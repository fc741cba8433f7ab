-- Takes the lock, or says who has it.
-- KEYS: lock, counter. ARGV: nonce, holder, TTL in ms, after, greatest jump,
-- 'shared' if another library may keep a string under the lock's key.
-- Returns {1, token}, {0, holder, remaining ms} or {-1, counter} for a jump.

-- Tokens are strings: Lua's numbers are doubles, and above 2^53 a healthy server
-- would hand out duplicates.
local function greater(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

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
  -- back, and INCR fails at the end of the integers.
  if ARGV[4] ~= '0' then
    local last = redis.call('GET', KEYS[2]) or '0'
    if greater(ARGV[4], last) then
      -- Rounding does not matter here: the bound is no token.
      if tonumber(ARGV[4]) - tonumber(last) > tonumber(ARGV[5]) then
        return {-1, last}
      end
      redis.call('SET', KEYS[2], ARGV[4])
    end
  end
  local n = redis.call('INCR', KEYS[2])
  token = n < 9007199254740992 and string.format('%.0f', n) or redis.call('GET', KEYS[2])
  redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'token', token, 'holder', ARGV[2], 'm:' .. ARGV[1], '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, token}
