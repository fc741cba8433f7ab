-- The queue of a fair lock: a list of nonces in the order in which they came, and a
-- hash that has for each until when it is presumed alive, by this server's clock.
-- A clock that is set makes a waiter lose its place, or keeps a dead one's. Follows
-- notes.lua.

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

