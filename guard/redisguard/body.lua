-- Begins a function around a script of the caller; between check.lua and that.
local keys, argv = {}, {}
for i = n + 1, #KEYS do keys[#keys + 1] = KEYS[i] end
for i = 2 * n + 2, #ARGV do argv[#argv + 1] = ARGV[i] end
-- In pcall, so that an error of the caller's is told from one before it.
local done, reply = pcall(function(KEYS, ARGV)
