-- What a node remembers beyond the locks: a hash with the greatest token that it has
-- promised, and the run of the server in which it has forgotten nothing. A server has
-- another run_id after each start, and FLUSHALL takes the hash along.

local function run_id()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'table' then
    error('INFO, which tells of a restart, is refused: ' .. info.err)
  end
  return string.match(info, 'run_id:(%w+)')
end

-- memory returns the counter and how far it is to be trusted:
--   whole    nothing was forgotten since it was established
--   waiting  new, or with a loss of data, and for so many ms (third result) there may
--            be locks that it has forgotten
--   fresh    these have ended by now, but the counter is still to be learned from the
--            other nodes; third result: the run in which that is so
local function memory(fence, waiting, delay)
  local f = redis.call('HMGET', fence, 'token', 'run', 'new')
  local counter = f[1] or '0'
  if not string.match(counter, '^%d+$') then
    return nil
  end
  if delay == '0' then
    return counter, 'whole'
  end
  local run = run_id()
  if f[2] == run then
    return counter, 'whole'
  end
  if f[3] ~= run then
    redis.call('HSET', fence, 'new', run)
    redis.call('SET', waiting, '', 'PX', delay)
  end
  local left = redis.call('PTTL', waiting)
  if left > 0 then
    return counter, 'waiting', left
  end
  return counter, 'fresh', run
end

