-- Epoch, position, serial, last packet identifier, entries, PUBREL entries, approximate size.
local SAMPLE = 200
if not known() then
  return false
end
local m = load()
local last_id = tonumber(redis.call('GET', LAST) or '0') or 0
local count = redis.call('ZCARD', MESSAGES)
local sample = redis.call('ZRANGE', MESSAGES, 0, SAMPLE - 1)
local size = 0
for _, member in ipairs(sample) do
  size = size + redis.call('STRLEN', member)
end
if #sample > 0 then
  size = math.floor(size * count / #sample)
end
return {m.epoch, m.position, last_serial(m, last_id), last_id, count, m.pubrel_count, size}
