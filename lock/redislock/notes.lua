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

