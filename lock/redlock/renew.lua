-- Prolongs this node's locks of some nonces.
-- KEYS: locks. ARGV: nonce and TTL in ms of each.
-- Returns two elements for each: 'yes' and its token, '' if it has none; or 'no' and
-- ''. Never creates a lock.
local reply = {}
for i, key in ipairs(KEYS) do
  -- What is no lock fails, and is none of that nonce; the others go on.
  local held = redis.pcall('HMGET', key, 'nonce', 'token')
  if not held.err and held[1] == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', key, ARGV[2 * i])
    table.insert(reply, 'yes')
    table.insert(reply, held[2] or '')
  else
    table.insert(reply, 'no')
    table.insert(reply, '')
  end
end
return reply
