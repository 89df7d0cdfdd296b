-- KEYS[4..]: entries. ARGV: epoch (empty = for everybody), whether only entries without a string
-- ("1"), then for each entry the score that it must have (empty = any). How many were deleted.
if not known() then
  return 0
end
local m = load()
if ARGV[1] ~= '' and m.epoch ~= tonumber(ARGV[1]) then
  return fenced(m, ARGV[1])
end
m.extras = has_extras(m)
local count = 0
for at = 4, #KEYS do
  local member = KEYS[at]
  local score = redis.call('ZSCORE', MESSAGES, member)
  local wanted = ARGV[at - 1]
  if score and (wanted == '' or number(score) == tonumber(wanted))
      and (ARGV[2] == '' or redis.call('EXISTS', member) == 0) then
    drop(m, member, score)
    count = count + 1
  end
end
if m.dirty then
  save(m)
end
return count
