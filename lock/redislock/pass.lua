-- The release of a lock for one that waits, unless others were refused it; comes after
-- publish.lua or spublish.lua and before release.lua, which follows where it does not
-- grant.
-- KEYS: lock, counter, mark of the next nonce. ARGV: nonce, nonce of the next one, its holder, its TTL in ms,
-- 'awaited' or '' if still others wait beside it.
-- Returns {token}, or what release.lua does.
do
  local value = redis.call('GET', KEYS[1])
  local state, nonce, rest
  if value then
    state, nonce, rest = string.match(value, '^fencing (%l%l%l%l) ([^\n]+)\n(.*)$')
  end
  if nonce == ARGV[2] and state ~= 'free' and string.match(rest, '^[^\n]*\n[^\n]*\n([^\n]*)\n') == ARGV[1] then
    return {string.match(rest, '^%d+')} -- again
  end
  local asked = state == 'want' and string.match(rest, '\n%?(.*)\n$')
  local alone = state == 'held' or state == 'want' and (not asked or asked == ARGV[2])
  if nonce == ARGV[1] and alone and redis.call('EXISTS', KEYS[3]) == 0 then
    local token = redis.call('INCR', KEYS[2])
    if token > 0 and token < 9007199254740992 then -- exact as a number of Lua
      redis.call('SET', KEYS[1], (ARGV[5] == 'awaited' and 'fencing want ' or 'fencing held ') .. ARGV[2] .. '\n'
        .. token .. '\n' .. ARGV[3] .. '\n' .. ARGV[1] .. '\n', 'PX', ARGV[4])
      return {string.format('%.0f', token)}
    end
    redis.call('DECR', KEYS[2])
  end
end
