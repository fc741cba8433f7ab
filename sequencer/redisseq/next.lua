-- Hands out the next token of a counter; follows counter.lua.
-- KEYS: counter. ARGV: after, greatest jump.
-- Returns {1, token}, or {-1, counter} for an implausible jump.
-- A repeated call only leaves out a token, so nothing is remembered about it.
local token, refusal = advance(KEYS[1], ARGV[1], ARGV[2])
if not token then
  return refusal
end
return {1, token}
