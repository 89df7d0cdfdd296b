-- KEYS[4..]: entries, all of them unless others came meanwhile. ARGV: epoch. 0 = unknown client,
-- 1 = gone, 2 = there are other entries: look again.
if not known() then
  return 0
end
local m = load()
if m.epoch ~= tonumber(ARGV[1]) then
  return fenced(m, ARGV[1])
end
local declared = {}
for at = 4, #KEYS do
  declared[KEYS[at]] = true
end
for _, member in ipairs(redis.call('ZRANGE', MESSAGES, 0, -1)) do
  if not declared[member] then
    return 2
  end
end
for at = 1, #KEYS do
  redis.call('UNLINK', KEYS[at])
end
return 1
