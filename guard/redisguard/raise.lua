-- Makes a fence the current one; follows greater.lua and current.lua.
-- KEYS: fence. ARGV: token, nonce, holder.
-- Returns {1}; {0, 1, token, holder, since} if it is superseded; {-1, policy} if the
-- server may evict it.
local f, damage = current(KEYS[1])
if damage then return damage end
if f then
  -- The same nonce makes it a repeated call.
  if f[1] == ARGV[1] and f[2] == ARGV[2] then return {1} end
  if not greater(ARGV[1], f[1]) then return {0, 1, f[1], f[3], f[4]} end
else
  -- No fence yet, or no longer. INFO and not CONFIG, which hosted servers refuse.
  local memory = redis.pcall('INFO', 'memory')
  if type(memory) == 'string' and string.find(memory, 'maxmemory:[1-9]') then
    local policy = string.match(memory, 'maxmemory_policy:(allkeys[%w-]*)')
    if policy then return {-1, policy} end
  end
end
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'nonce', ARGV[2], 'holder', ARGV[3],
  'since', now[1] .. string.format('%06d', now[2]))
return {1}
