-- Takes a member out of the lock of a nonce; the last one out frees it.
-- KEYS: lock, mark of the member, queue, alive. ARGV: nonce, member, life of the
-- mark in ms, how to publish.
-- Returns 1, or 0 if the nonce does not have the lock or the member is not in it.

local member = 'm:' .. ARGV[2]
local held = redis.pcall('HMGET', KEYS[1], 'nonce', member, 'joined', 'queued')
local has = not held.err and held[1] == ARGV[1] and held[2]
local again = has or redis.call('EXISTS', KEYS[2])

-- The mark says that this member is out, whatever comes late: its own release
-- again, from a client that missed the reply, is no loss; its acquisition, when
-- the release has overtaken it, is refused.
redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
if not has then
  return again
end

-- nonce, token, holder, this member, and perhaps the two flags.
if held[3] and redis.call('HLEN', KEYS[1]) > (held[4] and 6 or 5) then
  redis.call('HDEL', KEYS[1], member)
  return 1
end
redis.call('DEL', KEYS[1])
if not held[4] then
  -- It may be forbidden, or unknown to the server; then those who wait find out by
  -- asking.
  redis.pcall(ARGV[4], KEYS[1], '')
  return 1
end
-- The queue of a fair lock: a list of nonces in the order in which they came, and a
-- hash that has for each until when it is presumed alive, by this server's clock.
-- A clock that is set makes a waiter lose its place, or keeps a dead one's.

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- first returns the first contender that is me or alive, and forgets those before it.
local function first(queue, alive, me)
  while true do
    local nonce = redis.call('LINDEX', queue, 0)
    if not nonce or nonce == me then
      return nonce
    end
    local till = redis.call('HGET', alive, nonce)
    if till and tonumber(till) > now() then
      return nonce
    end
    redis.call('LPOP', queue)
    redis.call('HDEL', alive, nonce)
  end
end

local function enqueue(queue, alive, nonce, patience)
  if redis.call('HSET', alive, nonce, string.format('%.0f', now() + patience)) == 1 then
    redis.call('RPUSH', queue, nonce)
  end
  for _, key in ipairs({queue, alive}) do
    if redis.call('PTTL', key) < 2 * patience then
      redis.call('PEXPIRE', key, 2 * patience)
    end
  end
end

-- dequeue returns whether others are left.
local function dequeue(queue, alive, nonce)
  if redis.call('HDEL', alive, nonce) == 1 then
    redis.call('LREM', queue, 1, nonce)
  end
  return redis.call('EXISTS', queue) == 1
end

-- wake tells the first contender that the lock is free, and those who do not queue.
local function wake(publish, channel, queue, alive)
  redis.pcall(publish, channel, first(queue, alive) or '')
end

-- The end of release.lua for a lock that others queue for; follows queue.lua.
wake(ARGV[4], KEYS[1], KEYS[3], KEYS[4])
return 1
