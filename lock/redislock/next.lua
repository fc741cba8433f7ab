-- The end of a release of a lock that others were refused: grants it to the first of
-- them who waits and lives, and publishes that: nonce, token and number, how long ago it
-- was noted, and for how long it has the lock, in ms. Follows notes.lua and release.lua.

local notes, kept, message = string.match(old, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(.*)$'), '', ''
local time = now()
local listeners = notes ~= '' and redis.pcall('PUBSUB', receivers, KEYS[1])
listeners = type(listeners) ~= 'table' or listeners.err or listeners[2] ~= 0 -- unless it is sure that there are none
while notes ~= '' do
  local note, others = string.match(notes, '^([^\n]*\n)(.*)$')
  local nonce, ttl, number, since, holder = string.match(note, '^%?([^\t]*)\t(%d+)\t([%d-]*)\t(%d+)\t([^\n]*)\n$')
  local waited = time - since
  local polls = #number < 2 -- every second, or never again
  notes = others
  if waited < 0 or waited > (polls and 2000 or 3000) or not polls and not listeners then
    note = ''
  elseif number ~= '' and number ~= '-' then
    local token = redis.pcall('INCR', KEYS[2]) -- whatever is wrong with the counter, the lock is free
    if type(token) == 'number' and token > 0 and token < 100000000000000 then -- exact as a text that Lua makes of a number
      -- For a short time, in case it has gone: it renews.
      ttl = math.min(ttl, 2000)
      redis.call('SET', KEYS[1], 'fencing want ' .. nonce .. '\n' .. token .. '\n' .. holder .. '\n' .. mine .. inherited(kept .. notes), 'PX', ttl)
      message = nonce .. '\t' .. token .. '\t' .. number .. '\t' .. waited .. '\t' .. ttl
      break
    elseif type(token) == 'number' then
      redis.call('DECR', KEYS[2])
    end
  end
  kept = kept .. note
end
if message == '' and kept ~= '' then
  redis.call('SET', KEYS[1], 'fencing free ' .. mine .. kept, 'KEEPTTL')
end
-- It may be forbidden, or unknown to the server; then those who wait find out by asking.
local published = redis.pcall(publish, KEYS[1], message)
if message ~= '' and type(published) == 'table' then -- nobody can have heard of it
  redis.call('SET', KEYS[1], 'fencing free ' .. mine .. inherited(kept .. notes), 'KEEPTTL')
end
return 1
