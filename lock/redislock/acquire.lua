-- Takes the lock, or says who has it; follows grant.lua, counter.lua, notes.lua and, if
-- it is fair, queue.lua.
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
  if state ~= 'free' and not string.find(rest or '', '^%d+\n[^\n]*\n[^\n]*\n') or state == 'free' and not string.find('\n' .. rest, '\n$') then
    state = nil
  end
end
if value and not state then
  if ARGV[7] == 'shared' then
    -- A replica would answer too, from what it knows; a write makes it say what it is.
    redis.call('PEXPIRE', KEYS[3], 10000)
    return refuse('a user of another library', redis.call('PTTL', KEYS[1]), 1)
  end
  return redis.error_reply('WRONGTYPE the key of the lock has something that is no lock')
end
local held = value and state ~= 'free'
local other = held and nonce ~= ARGV[1]
-- Also where it would only be noted as one that waits, since who has gone would hold up
-- the others; and where its own lock lives on for those who joined.
local last = other and string.match(rest, '^[^\n]*\n[^\n]*\n([^\n]*)') or state == 'free' and nonce
if last == ARGV[1] or (fair or not other or ARGV[4] and ARGV[4] ~= '') and redis.call('EXISTS', KEYS[3]) == 1 then
  return redis.error_reply('ERR this acquisition was released before it arrived')
end

if other then
  local notes = rest
  if not fair and state ~= 'join' then
    local time, at, ending, before, since = now(), line(rest, ARGV[1])
    local number = string.match(ARGV[4] or '', '^%d+$') or at and '0' or ''
    local mine = '?' .. ARGV[1] .. '\t' .. ARGV[3] .. '\t' .. number .. '\t' .. string.format('%.0f', time) .. '\t' .. ARGV[2] .. '\n'
    if not at then
      local few, n = recent(rest, time)
      notes = few .. (n < (number == '' and 16 or 64) and mine or '')
    elseif before == '' or before == '-' or (#before == 1) ~= (#number == 1) or math.abs(time - since) > 500 then
      notes = replace(rest, at, ending, mine)
    end
  end
  local noted
  if notes ~= rest or state == 'held' then
    noted = redis.pcall('SET', KEYS[1], 'fencing ' .. (state == 'held' and 'want' or state) .. ' ' .. nonce .. '\n' .. notes, 'KEEPTTL')
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
  local before = token
  local refusal
  token, refusal = advance(KEYS[2], after, ARGV[6])
  if not token then
    return refusal
  end
  if held then
    rest = string.sub(rest, #before + 1)
  else
    local at, ending = line(rest or '', ARGV[1])
    local notes = at and replace(rest, at, ending, '') or rest or ''
    rest = '\n' .. ARGV[2] .. '\n' .. (nonce or '') .. '\n' .. inherited(notes)
    state = notes == '' and 'held' or 'want'
  end
end
local others = fair and dequeue(KEYS[4], KEYS[5], ARGV[1]) or not fair and ARGV[4] and ARGV[4] ~= ''
if state == 'held' and others then
  state = 'want'
end
value = 'fencing ' .. state .. ' ' .. ARGV[1] .. '\n' .. token .. rest
if state == 'join' then -- other members may count on a longer TTL
  redis.call('SET', KEYS[1], value, 'KEEPTTL')
else
  redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
end
return token
