-- KEYS: lock. Returns {nonce, token, holder, remaining ms}, empty strings if it is free.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token', 'holder')
return {held[1] or '', held[2] or '', held[3] or '', tostring(redis.call('PTTL', KEYS[1]))}
