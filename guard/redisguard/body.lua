-- Runs a script of the caller; between check.lua, whose names end with their block, and
-- leave.lua. The script is a function outside of this one, so it sees no name of ours.
return (function(body)
local n = tonumber(ARGV[1])
local keys, argv = {}, {}
for i = n + 1, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 2 * n + 2, #ARGV do argv[#argv + 1] = ARGV[i] end
-- In pcall, so that an error of the caller's is told from one before it.
local done, reply = pcall(body, keys, argv)
