-- Enters fences; follows current.lua.
-- KEYS: n fences, then the caller's. ARGV: n, token and nonce of each, then the
-- caller's. Returns {0, i, token, holder, since} if fence i is refused, without the
-- rest if there is none.
local n = tonumber(ARGV[1])
for i = 1, n do
  local f = redis.call('HMGET', KEYS[i], 'token', 'nonce')
  if f[1] ~= ARGV[2 * i] or f[2] ~= ARGV[2 * i + 1] then
    local f, damage = current(KEYS[i])
    if damage then return damage end
    if not f then return {0, i} end
    return {0, i, f[1], f[3], f[4]}
  end
end
