-- Releases many locks that nobody waits for, as release.lua does one.
-- KEYS: the locks. ARGV: the nonces.
-- Returns a list with 1 for each, false for those that are for release.lua.
local done = {}
local values = redis.call('MGET', unpack(KEYS))
for i, lock in ipairs(KEYS) do
  local mine = ARGV[i] .. '\n'
  done[i] = false
  if values[i] and string.sub(values[i], 1, 13 + #mine) == 'fencing held ' .. mine then
    redis.call('SET', lock, 'fencing free ' .. mine, 'KEEPTTL')
    done[i] = 1
  end
end
return done
