-- Frees this node's lock of a nonce.
-- KEYS: lock, mark of the nonce. ARGV: nonce, life of the mark in ms.
-- Returns {'yes'} or {'no'}.
local held = redis.call('HGET', KEYS[1], 'nonce')
-- The mark says that this nonce is out, whatever comes late: its release again, from
-- a client that missed the reply, is no loss; its grant is refused.
local again = redis.call('EXISTS', KEYS[2]) == 1
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
if held ~= ARGV[1] then
  return {again and 'yes' or 'no'}
end
redis.call('DEL', KEYS[1])
return {'yes'}
