-- Begins the scripts of redisguard.

-- current returns the fence in force under a key: token, nonce, holder, since; nil
-- if there is none, and then an error if there is something else.
local function current(key)
  local f = redis.call('HMGET', key, 'token', 'nonce', 'holder', 'since')
  if f[1] and f[2] and string.match(f[1], '^[1-9]%d*$') then return f end
  if redis.call('EXISTS', key) == 0 then return nil end
  return nil, redis.error_reply('WRONGTYPE the key has something that is no fence')
end

