-- Prolongs this node's lock of a nonce. KEYS: lock. ARGV: nonce, TTL in ms.
-- Returns {'yes', token or ''} or {'no'}. Never creates it.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] then
  return {'no'}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'yes', held[2] or ''}
