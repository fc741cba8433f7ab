
-- The end of release.lua for a lock that others queue for; follows queue.lua.
wake(ARGV[2], KEYS[1], KEYS[3], KEYS[4])
return 1
