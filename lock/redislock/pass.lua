-- The release of a lock for one that waits, unless others were refused it; follows
-- publish.lua or spublish.lua, and notes.lua. release.lua and next.lua come after it, for
-- where it does not grant.
-- KEYS: lock, counter. ARGV: nonce, what release.lua has second or '', nonce of the next
-- one, its holder, its TTL in ms, 'awaited' or '' if still others wait.
-- Returns the token as a string, or what release.lua does.
do
  local value = redis.call('GET', KEYS[1])
  local state, nonce, token, last, notes
  if value then
    state, nonce, token, last, notes = string.match(value, '^fencing (%l%l%l%l) ([^\n]+)\n(%d+)\n[^\n]*\n([^\n]*)\n(.*)$')
  end
  if nonce == ARGV[3] and last == ARGV[1] then
    -- It may have been granted for less, or be shared by one that counts on more.
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[5]))
    return token
  end
  if nonce == ARGV[1] and state ~= 'join' then
    local at, ending = line(notes, ARGV[3])
    local others = at and replace(notes, at, ending, '') or notes
    if inherited(others) == others and not string.find(others, '\t%d+\t%d+\t') then
      token = redis.pcall('INCR', KEYS[2])
      if type(token) == 'number' and token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
        redis.call('SET', KEYS[1], ((ARGV[6] == 'awaited' or others ~= '') and 'fencing want ' or 'fencing held ') .. ARGV[3] .. '\n'
          .. token .. '\n' .. ARGV[4] .. '\n' .. ARGV[1] .. '\n' .. others, 'PX', ARGV[5])
        return tostring(token)
      end
      if type(token) == 'number' then
        redis.call('DECR', KEYS[2])
      end
    end
  end
end

