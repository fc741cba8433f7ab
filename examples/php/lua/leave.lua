-- What the value of a lock says of those who were refused it: a line for each, in the
-- order in which they came, with nonce, TTL in ms, number, when it last said that it
-- lives, by this server's clock, and holder. The number says more of it:
--   ''      it has asked once, while the present holder had the lock
--   '-'     or an earlier one
--   0       it has asked more than once, and so goes on asking
--   others  it goes on waiting, and listens

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- line returns where the line of a nonce begins and ends in a text, its number and since
-- when it is there; nil if there is none.
local function line(text, nonce)
  local at = string.find('\n' .. text, '\n?' .. nonce .. '\t', 1, true)
  if at then
    local number, since, last = string.match(text, '^%d+\t([%d-]*)\t(%d+)\t[^\n]*()', at + #nonce + 2)
    return at, last, number, tonumber(since) -- last is that of the line feed
  end
end

-- replace puts another text in place of what stands from begin to last.
local function replace(text, begin, last, other)
  return string.sub(text, 1, begin - 1) .. other .. string.sub(text, last + 1)
end

-- recent returns a text, if it is long without what it says of those who have gone, and
-- how many lines are left.
local function recent(text, time)
  local _, n = string.gsub(text, '\n%?', '')
  if n < 16 then
    return text, n
  end
  text = string.gsub(text, '%?[^\t\n]*\t%d+\t([%d-]*)\t(%d+)\t[^\n]*\n', function(number, since)
    if time - since > (#number < 2 and 2000 or 3000) then
      n = n - 1
      return ''
    end
  end)
  return text, n
end

-- inherited returns the lines as the next holder gets them.
local function inherited(notes)
  return (string.gsub(notes, '\t\t(%d)', '\t-\t%1'))
end

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
