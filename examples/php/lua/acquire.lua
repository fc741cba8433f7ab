-- The usual acquisition, of a lock that is free, comes first: without the functions
-- below, which a script makes anew on each run and which cost as much as the rest.
-- KEYS and ARGV are those of acquire.lua.
if not ARGV[5] then
  local old = redis.call('GET', KEYS[1])
  local last = old and string.match(old, '^fencing free ([^\n]+)\n$')
  if not old or last and last ~= ARGV[1] then
    if redis.call('EXISTS', KEYS[3]) == 0 then
      -- What can fail comes before the first write to the lock: scripts do not roll
      -- back.
      local token = redis.call('INCR', KEYS[2])
      if token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
        redis.call('SET', KEYS[1], (ARGV[4] and ARGV[4] ~= '' and 'fencing want ' or 'fencing held ') .. ARGV[1] .. '\n'
          .. token .. '\n' .. ARGV[2] .. '\n' .. (last or '') .. '\n', 'PX', ARGV[3])
        return token
      end
      redis.call('DECR', KEYS[2])
    end
  end
end

-- Tokens are strings: Lua's numbers are doubles, and above 2^53 a healthy server
-- would take neighbours for equal.
local function greater(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

-- The part that the scripts of lock/redislock and sequencer/redisseq share; follows
-- greater.lua.

-- advance moves a counter past after and returns the new token. Otherwise it
-- returns nil and the script's reply: {-1, counter} if after is more than jump
-- ahead, or an error. A refused demand leaves the counter as it was.
local function advance(counter, after, jump)
  if after ~= '0' then
    local last = redis.call('GET', counter) or '0'
    -- What is no counter is somebody's data. INCR would refuse it, but the SET
    -- below would not.
    if last ~= '0' and not string.match(last, '^[1-9]%d*$') then
      return nil, redis.error_reply('ERR value is not an integer or out of range')
    end
    if greater(after, last) then
      -- Rounding does not matter here: the bound is no token.
      if tonumber(after) - tonumber(last) > tonumber(jump) then
        return nil, {-1, last}
      end
      -- INCR would say so after the SET, which no error takes back.
      if after == '9223372036854775807' then
        return nil, redis.error_reply('ERR increment or decrement would overflow')
      end
      redis.call('SET', counter, after)
    end
  end
  local n = redis.call('INCR', counter)
  if n < 1 then -- it was negative: no counter of ours
    redis.call('DECR', counter)
    return nil, redis.error_reply('ERR value is not an integer or out of range')
  end
  return n < 9007199254740992 and string.format('%.0f', n) or redis.call('GET', counter)
end

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
