-- KEYS[4..]: entries, all of them unless others came meanwhile. ARGV: epoch. 0 = unknown client,
-- 1 = gone, 2 = there are other entries: look again.
if not known() then
  return 0
end
local m = load()
if m.epoch ~= tonumber(ARGV[1]) then
  return fenced(m, ARGV[1])
end
if redis.call('ZCARD', MESSAGES) > #KEYS - 3 then
  return 2
end
for _, member in ipairs(redis.call('ZRANGE', MESSAGES, 0, -1)) do
  redis.call('UNLINK', member)
end
redis.call('UNLINK', MESSAGES, LAST, OURS)
return 1
