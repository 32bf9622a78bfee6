-- Settles a request by hand, by the rules of crates/core/src/request/entry.rs.
-- KEYS: the request. ARGV: a new token and an answer, or nothing to forget the request.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entry = redis.call('HMGET', KEYS[1], 'token', 'lease', 'answer')
local token, lease, answer = entry[1], entry[2], entry[3]

if not token then return {'unknown', '0'} end
if not answer and tonumber(lease) > now then return {'under_way', lease} end
if not ARGV[2] then
  redis.call('DEL', KEYS[1])
  return {answer and 'answered' or 'in_doubt', '0'}
end
if answer then return {'already', '0'} end
-- HSET must be the first write: a full server refuses that one, but after another write it would let HSET pass.
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'answer', ARGV[2], 'whole', '1')
redis.call('HDEL', KEYS[1], 'lease')
return {'settled', '0'}
