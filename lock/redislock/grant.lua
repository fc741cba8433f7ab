-- The usual acquisition, of a lock that is free, comes first: without the functions
-- below, which a script makes anew on each run and which cost as much as the rest.
-- KEYS and ARGV are those of acquire.lua.
if not ARGV[5] then
  local old = redis.call('GET', KEYS[1])
  local last = old and string.match(old, '^fencing free ([^\n]+)\n$')
  if not old or last and last ~= ARGV[1] then
    if redis.call('EXISTS', KEYS[3]) == 0 then
      -- What can fail comes before the first write to the lock: scripts do not roll
      -- back.
      local token = redis.call('INCR', KEYS[2])
      if token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
        redis.call('SET', KEYS[1], (ARGV[4] and ARGV[4] ~= '' and 'fencing want ' or 'fencing held ') .. ARGV[1] .. '\n'
          .. token .. '\n' .. ARGV[2] .. '\n' .. (last or '') .. '\n', 'PX', ARGV[3])
        return token
      end
      redis.call('DECR', KEYS[2])
    end
  end
end

