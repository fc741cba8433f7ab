-- Takes the lock, or says who has it; follows grant.lua, counter.lua and, if it is
-- fair, queue.lua.
-- KEYS: lock, counter, mark of the nonce, and if fair: queue, alive. ARGV: nonce,
-- holder, TTL in ms; from here on what is not needed may be left out: 'awaited' or ''
-- if others wait beside the caller, after, greatest jump, 'shared' if another library
-- may keep something under the lock's key, and if fair: patience in ms.
-- Returns the token, {0, holder, remaining ms}, the same with a fourth element if
-- its release wakes nobody, or {-1, counter} for a jump.

local after, fair = ARGV[5] or '0', ARGV[8]

local function refuse(holder, silent)
  if fair then
    enqueue(KEYS[4], KEYS[5], ARGV[1], ARGV[8])
  end
  return {0, holder, redis.call('PTTL', KEYS[1]), silent}
end

local held = redis.pcall('HMGET', KEYS[1], 'nonce', 'token', 'holder')
if held.err or not held[1] and redis.call('EXISTS', KEYS[1]) == 1 then
  if ARGV[7] == 'shared' then
    -- A replica would answer too, from what it knows; a write makes it say what it is.
    redis.call('DEL', KEYS[3])
    return refuse('a user of another library', 1)
  end
  return redis.error_reply('WRONGTYPE the key of the lock has something that is no lock')
end
-- Also in turn, where a place in the queue of one who has gone holds up the others, and
-- where its own lock lives on for those who joined.
local other = held[1] and held[1] ~= ARGV[1]
if (fair or not other) and redis.call('EXISTS', KEYS[3]) == 1 then
  return redis.error_reply('ERR this acquisition was released before it arrived')
end
if other then
  -- Always, for the replica's sake. A full server cannot, which is no reason to say
  -- anything but who has the lock.
  local noted = redis.pcall('HSETNX', KEYS[1], 'awaited', '')
  if type(noted) == 'table' and not string.find(noted.err, 'OOM', 1, true) then
    return noted
  end
  return refuse(held[3])
end

local token = held[2]
if not token then
  local ahead = fair and first(KEYS[4], KEYS[5], ARGV[1])
  if ahead and ahead ~= ARGV[1] then
    return refuse('an earlier waiter')
  end
end
if not token or not greater(token, after) then
  local refusal
  token, refusal = advance(KEYS[2], after, ARGV[6])
  if not token then
    return refusal
  end
  redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'token', token, 'holder', ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local others = fair and dequeue(KEYS[4], KEYS[5], ARGV[1])
if others or ARGV[4] == 'awaited' then
  redis.call('HSET', KEYS[1], 'awaited', '')
end
return token
