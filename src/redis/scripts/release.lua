-- Forgets a request that was not answered, by the rules of crates/core/src/request/entry.rs.
-- KEYS: the request. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] or redis.call('HEXISTS', KEYS[1], 'answer') == 1 then return 0 end
redis.call('DEL', KEYS[1])
return 1
