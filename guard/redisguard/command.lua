-- Runs a command of the caller, which its arguments are; between check.lua and
-- leave.lua.
local done, reply = true, redis.pcall(unpack(ARGV, 2 * n + 2))
