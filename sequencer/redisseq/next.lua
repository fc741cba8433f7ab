-- Hands out the next token of a counter.
-- KEYS: counter. ARGV: after, greatest jump.
-- Returns {1, token}, or {-1, counter} for an implausible jump.
-- A repeated call only leaves out a token, so nothing is remembered about it.

-- Tokens stay strings all the way: Lua's numbers are doubles, and above 2^53 a
-- healthy server would hand out duplicates.
local function greater(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local last = redis.call('GET', KEYS[1]) or '0'
-- What is no counter is somebody's data. INCR would refuse it, but the SET below
-- would not. GET refuses every other type.
if last ~= '0' and not string.match(last, '^[1-9]%d*$') then
  return redis.error_reply('ERR value is not an integer or out of range')
end
if greater(ARGV[1], last) then
  -- Rounding does not matter here: the bound is no token.
  if tonumber(ARGV[1]) - tonumber(last) > tonumber(ARGV[2]) then
    return {-1, last}
  end
  -- INCR would say so after the SET, which no error takes back.
  if ARGV[1] == '9223372036854775807' then
    return redis.error_reply('ERR increment or decrement would overflow')
  end
  redis.call('SET', KEYS[1], ARGV[1])
end
redis.call('INCR', KEYS[1])
return {1, redis.call('GET', KEYS[1])}
