-- Reserves a request, by the rules of crates/core/src/request/entry.rs.
-- KEYS: the request. ARGV: token, fingerprint, lease and retention in milliseconds, 1 to forbid taking over.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local entry = redis.call('HMGET', KEYS[1], 'token', 'fingerprint', 'lease', 'answer')
local token, fingerprint, lease, answer = entry[1], entry[2], entry[3], entry[4]

-- A request that is reserved again has only these fields, so HSET replaces all of them. HSET must be the first write: a
-- full server refuses that one, but after another write it would let HSET pass.
local function put(word)
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'fingerprint', ARGV[2], 'lease', string.format('%.0f', now + ARGV[3]))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return {word, false}
end

if not token then return put('new') end
if fingerprint ~= ARGV[2] then return {'other', false} end
if answer then return {'answered', answer} end
if token == ARGV[1] then return put('new') end
if tonumber(lease) > now then return {'in_progress', false} end
if ARGV[5] == '1' then return {'in_doubt', false} end
return put('taken_over')
