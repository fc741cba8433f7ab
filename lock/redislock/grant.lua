-- The usual acquisition, of a lock that is free, comes first: without the functions
-- below, which a script makes anew on each run and which cost as much as the rest.
-- KEYS and ARGV are those of acquire.lua.
if not ARGV[5] and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  -- What can fail comes before the first write to the lock: scripts do not roll
  -- back.
  local token = redis.call('INCR', KEYS[2])
  if token > 0 and token < 9007199254740992 then -- exact as a number of Lua
    redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'token', token, 'holder', ARGV[2])
    if ARGV[4] == 'awaited' then
      redis.call('HSET', KEYS[1], 'awaited', '')
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return token
  end
  redis.call('DECR', KEYS[2])
end

