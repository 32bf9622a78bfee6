-- Remembers an answer, by the rules of crates/core/src/request/entry.rs.
-- KEYS: the request. ARGV: token, answer, 1 if the answer is whole, retention in milliseconds.
local entry = redis.call('HMGET', KEYS[1], 'token', 'whole')
if entry[1] ~= ARGV[1] then return 0 end
if entry[2] == '1' then return 1 end
-- HSET must be the first write: a full server refuses that one, but after another write it would let HSET pass.
redis.call('HSET', KEYS[1], 'answer', ARGV[2], 'whole', ARGV[3])
redis.call('HDEL', KEYS[1], 'lease')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
