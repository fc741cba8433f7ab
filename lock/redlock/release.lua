-- Frees this node's lock of a nonce.
-- KEYS: lock, mark of the nonce. ARGV: nonce, life of the mark in ms.
-- Returns {'yes'} or {'no'}.
local has = redis.call('HGET', KEYS[1], 'nonce') == ARGV[1]
local left = has or redis.call('GET', KEYS[2]) == 'left'
-- Freeing comes before the mark, which a server without memory refuses as the first
-- write of a script.
if has then
  redis.call('DEL', KEYS[1])
end
-- The mark says that this nonce is out, whatever comes late: its release again, from
-- a client that missed the reply, is answered as before; its grant is refused. A server
-- without memory refuses that as well.
local marked = redis.pcall('SET', KEYS[2], left and 'left' or 'lost', 'PX', ARGV[2])
if marked.err and not string.find(marked.err, 'OOM', 1, true) then
  return marked
end
return {left and 'yes' or 'no'}
