-- The part that the scripts of lock/redislock and sequencer/redisseq share; follows
-- greater.lua.

-- advance moves a counter past after and returns the new token. Otherwise it
-- returns nil and the script's reply: {-1, counter} if after is more than jump
-- ahead, or an error. A refused demand leaves the counter as it was.
local function advance(counter, after, jump)
  if after ~= '0' then
    local last = redis.call('GET', counter) or '0'
    -- What is no counter is somebody's data. INCR would refuse it, but the SET
    -- below would not.
    if last ~= '0' and not string.match(last, '^[1-9]%d*$') then
      return nil, redis.error_reply('ERR value is not an integer or out of range')
    end
    if greater(after, last) then
      -- Rounding does not matter here: the bound is no token.
      if tonumber(after) - tonumber(last) > tonumber(jump) then
        return nil, {-1, last}
      end
      -- INCR would say so after the SET, which no error takes back.
      if after == '9223372036854775807' then
        return nil, redis.error_reply('ERR increment or decrement would overflow')
      end
      redis.call('SET', counter, after)
    end
  end
  local n = redis.call('INCR', counter)
  if n < 1 then -- it was negative: no counter of ours
    redis.call('DECR', counter)
    return nil, redis.error_reply('ERR value is not an integer or out of range')
  end
  return n < 9007199254740992 and string.format('%.0f', n) or redis.call('GET', counter)
end

