-- Tokens are strings: Lua's numbers are doubles, and above 2^53 a healthy server
-- would take neighbours for equal.
local function greater(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

