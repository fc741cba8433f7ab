-- Ends what body.lua or command.lua began. Returns {1, reply} or {2, error}.
local failure = not done and reply
if done and type(reply) == 'table' and reply.err then failure = reply end
if not failure then return {1, reply} end
failure = tostring(type(failure) == 'table' and failure.err or failure)
-- The client looks for the master when it sees this one; a replica has written nothing.
if string.find(failure, '^%-?READONLY ') then return redis.error_reply(failure) end
return {2, failure}
