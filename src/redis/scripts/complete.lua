-- Remembers an answer, by the rules of crates/core/src/request/entry.rs.
-- KEYS: the request. ARGV: token, answer, 1 if it is whole, retention in milliseconds.
local entry = redis.call('HMGET', KEYS[1], 'token', 'whole')
if entry[1] ~= ARGV[1] then return 0 end
if entry[2] == '1' then return 1 end
-- First what a full server refuses: after another command it would let the script go on.
redis.call('HSET', KEYS[1], 'answer', ARGV[2], 'whole', ARGV[3])
redis.call('HDEL', KEYS[1], 'lease')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
