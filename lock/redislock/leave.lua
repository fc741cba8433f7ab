-- Takes a member out of the lock of a nonce, whatever its state; the last one out frees
-- it. Follows publish.lua or spublish.lua, notes.lua and, if it is in turn, queue.lua.
-- KEYS: lock, members, mark of the member, and if in turn: queue, alive. ARGV: nonce,
-- member: the nonce itself is one.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.

local value = redis.pcall('GET', KEYS[1])
local state, nonce, last
if type(value) == 'string' then
  state, nonce, last = string.match(value, '^fencing (%l%l%l%l) ([^\n]+)\n[^\n]*\n?[^\n]*\n?([^\n]*)')
end
local has = nonce == ARGV[1] and state ~= 'free'
if has and state == 'join' then
  -- Its members may have been evicted alone; then it is better free than nobody's.
  has = redis.call('EXISTS', KEYS[2]) == 0 or redis.call('HDEL', KEYS[2], ARGV[2]) == 1
else
  has = has and ARGV[2] == nonce
end
-- Freeing comes before the mark, which a server without memory refuses as the first
-- write of a script.
local free = has and (state ~= 'join' or redis.call('EXISTS', KEYS[2]) == 0)
if free then
  redis.call('DEL', KEYS[1])
end
local begin, ending = line(type(value) == 'string' and not free and value or '', ARGV[2])
if begin then -- as one that was refused
  redis.pcall('SET', KEYS[1], replace(value, begin, ending, ''), 'KEEPTTL')
end
local again = has or redis.call('GET', KEYS[3]) == 'left'
  or ARGV[1] == ARGV[2] and (last == ARGV[1] or state == 'free' and nonce == ARGV[1])
-- The mark says for 10 s that this member is out, whatever comes late: its own release
-- again is no loss; its acquisition, when the release has overtaken it, is refused.
local marked = redis.pcall('SET', KEYS[3], again and 'left' or 'lost', 'PX', 10000)
if marked.err and not string.find(marked.err, 'OOM', 1, true) then
  return marked -- such as that this is a replica
end
if free then
  if KEYS[4] then
    wake(publish, KEYS[1], KEYS[4], KEYS[5])
  else
    redis.pcall(publish, KEYS[1], '')
  end
end
return again and 1 or 0
