-- Takes the lock, or says who has it; follows grant.lua, counter.lua and, if it is
-- fair, queue.lua.
-- KEYS: lock, counter, mark of the nonce, and if fair: queue, alive. ARGV: nonce,
-- holder, TTL in ms; from here on what is not needed may be left out: whether somebody
-- beside the caller waits, '' or 'awaited', or a number if the caller itself waits and
-- listens; after, greatest jump, 'shared' if another library may keep something under
-- the lock's key, and if fair: patience in ms.
-- Returns the token, {0, holder, remaining ms}, the same with a fourth element if
-- its release wakes nobody, or {-1, counter} for a jump.

local after, fair = ARGV[5] or '0', ARGV[8]

local function refuse(holder, remaining, silent)
  if fair then
    enqueue(KEYS[4], KEYS[5], ARGV[1], ARGV[8])
  end
  return {0, holder, remaining, silent}
end

local value = redis.pcall('GET', KEYS[1])
local state, nonce, rest
if type(value) == 'string' then
  state, nonce, rest = string.match(value, '^fencing (%l%l%l%l) ([^\n]+)\n(.*)$')
end
if value and not state then
  if ARGV[7] == 'shared' then
    -- A replica would answer too, from what it knows; a write makes it say what it is.
    redis.call('DEL', KEYS[3])
    return refuse('a user of another library', redis.call('PTTL', KEYS[1]), 1)
  end
  return redis.error_reply('WRONGTYPE the key of the lock has something that is no lock')
end
local held = value and state ~= 'free'
local other = held and nonce ~= ARGV[1]
-- Also where it would only be noted as one that waits, since who has gone would hold up
-- the others; and where its own lock lives on for those who joined.
if (fair or not other or ARGV[4] and ARGV[4] ~= '') and (state == 'free' and nonce == ARGV[1] or redis.call('EXISTS', KEYS[3]) == 1) then
  return redis.error_reply('ERR this acquisition was released before it arrived')
end

if other then
  -- Those who ask are noted in the order in which they came: a release grants the lock
  -- to the first of them who listens, or who has asked again and so goes on asking.
  local noted
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local known = '\n?' .. ARGV[1] .. '\t'
  local at = string.find(rest, known, 1, true)
  local number = string.match(ARGV[4] or '', '^%d+$') or at and '0' or ''
  local line = '?' .. ARGV[1] .. '\t' .. ARGV[3] .. '\t' .. number .. '\t' .. string.format('%.0f', now) .. '\t' .. ARGV[2] .. '\n'
  if at then
    local before, since = string.match(rest, '^%d+\t(%d*)\t(%d+)', at + #known)
    if (#number > 1) == (#before > 1) and before ~= '' and now - since >= 0 and now - since < 1000 then
      line = nil
    else
      line = string.sub(rest, 1, at) .. line .. string.sub(rest, string.find(rest, '\n', at + 1, true) + 1)
    end
  else
    local _, notes = string.gsub(rest, '\n%?', '')
    line = rest .. (notes < 32 and line or '')
  end
  if state == 'join' or fair then
    line = state == 'held' and rest
  end
  if line then
    noted = redis.pcall('SET', KEYS[1], 'fencing ' .. (state == 'held' and 'want' or state) .. ' ' .. nonce .. '\n' .. line, 'KEEPTTL')
  else
    noted = redis.pcall('SET', KEYS[1], '', 'NX') -- changes nothing, but not on a replica
  end
  -- A full server cannot, which is no reason to say anything but who has the lock.
  if type(noted) == 'table' and noted.err and not string.find(noted.err, 'OOM', 1, true) then
    return noted
  end
  return refuse(string.match(rest, '^[^\n]*\n([^\n]*)'), redis.call('PTTL', KEYS[1]))
end
if fair and not held then
  local ahead = first(KEYS[4], KEYS[5], ARGV[1])
  if ahead and ahead ~= ARGV[1] then
    return refuse('an earlier waiter', -2)
  end
end

local token = held and string.match(rest, '^%d+')
if token and greater(token, after) then
  rest = string.sub(rest, #token + 1)
else
  local last = token
  local refusal
  token, refusal = advance(KEYS[2], after, ARGV[6])
  if not token then
    return refusal
  end
  rest = held and string.sub(rest, #last + 1) or '\n' .. ARGV[2] .. '\n' .. (nonce or '') .. '\n'
end
local others = fair and dequeue(KEYS[4], KEYS[5], ARGV[1]) or not fair and ARGV[4] and ARGV[4] ~= ''
if not held or state == 'held' then
  state = others and 'want' or 'held'
end
value = 'fencing ' .. state .. ' ' .. ARGV[1] .. '\n' .. token .. rest
if state == 'join' then -- other members may count on a longer TTL
  redis.call('SET', KEYS[1], value, 'KEEPTTL')
else
  redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
end
return token
