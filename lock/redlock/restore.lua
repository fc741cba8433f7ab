-- Gives a lock that a majority has just renewed back to a node that has forgotten it;
-- follows the function greater.
-- KEYS: lock, fence, mark of the nonce. ARGV: nonce, holder, TTL in ms, token.
-- Returns {'yes'}, or {'no'} if another has it or the nonce has released.
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
  return {'no'}
end
redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'holder', ARGV[2], 'base', ARGV[4], 'token', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if greater(ARGV[4], redis.call('HGET', KEYS[2], 'token') or '0') then
  redis.call('HSET', KEYS[2], 'token', ARGV[4])
end
return {'yes'}
