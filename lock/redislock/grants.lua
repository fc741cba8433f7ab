-- Takes many locks that are free, as grant.lua takes one: a run for all of them costs less
-- than a run for each.
-- KEYS: the locks, their counters, the marks of the nonces. ARGV: the nonces, and the
-- holder and the TTL in ms of them all.
-- Returns the tokens, false in place of those that are for acquire.lua to grant or to
-- refuse.
local n, tokens, taken = #ARGV - 2, {}, {}
if redis.call('EXISTS', unpack(KEYS, 2 * n + 1)) > 0 then
  return tokens
end
local values = redis.call('MGET', unpack(KEYS, 1, n))
for i = 1, n do
  local lock, nonce, old = KEYS[i], ARGV[i], values[i]
  local last = old and string.match(old, '^fencing free ([^\n]+)\n$')
  tokens[i] = false
  -- What MGET does not find may be there, and be no string.
  if not taken[lock] and (not old and redis.call('EXISTS', lock) == 0 or last and last ~= nonce) then
    local token = redis.pcall('INCR', KEYS[n + i])
    if type(token) == 'number' and token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
      redis.call('SET', lock, 'fencing held ' .. nonce .. '\n' .. token .. '\n' .. ARGV[n + 1] .. '\n' .. (last or '') .. '\n', 'PX', ARGV[n + 2])
      tokens[i], taken[lock] = token, true
    elseif type(token) == 'number' then
      redis.call('DECR', KEYS[n + i])
    end
  end
end
return tokens
