-- The release of a lock for one that waits, unless others were refused it; follows
-- publish.lua or spublish.lua. release.lua comes after it, for where it does not grant.
-- KEYS: lock, counter. ARGV: nonce, nonce of the next one, its holder, its TTL in ms,
-- 'awaited' or '' if still others wait.
-- Returns the token as a string, or what release.lua does.
do
  local value = redis.call('GET', KEYS[1])
  local state, nonce, token, last, notes
  if value then
    state, nonce, token, last, notes = string.match(value, '^fencing (%l%l%l%l) ([^\n]+)\n(%d+)\n[^\n]*\n([^\n]*)\n(.*)$')
  end
  if nonce == ARGV[2] and last == ARGV[1] and state ~= 'free' then
    return token -- again
  end
  local alone = notes == '' or notes and string.match(notes, '^%?([^\t]*)[^\n]*\n$') == ARGV[2]
  if nonce == ARGV[1] and alone and state ~= 'join' then
    token = redis.call('INCR', KEYS[2])
    if token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
      redis.call('SET', KEYS[1], (ARGV[5] == 'awaited' and 'fencing want ' or 'fencing held ') .. ARGV[2] .. '\n'
        .. token .. '\n' .. ARGV[3] .. '\n' .. ARGV[1] .. '\n', 'PX', ARGV[4])
      return tostring(token)
    end
    redis.call('DECR', KEYS[2])
  end
end

