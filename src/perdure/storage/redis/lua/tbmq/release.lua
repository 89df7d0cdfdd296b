-- KEYS[4..]: entries. ARGV: epoch, lifetime in milliseconds, JSON of a PUBREL after its packet
-- identifier, for an entry whose string has expired. How many are PUBREL now.
if not known() then
  return 0
end
local m = load()
if m.epoch ~= tonumber(ARGV[1]) then
  return fenced(m, ARGV[1])
end
local count = 0
for at = 4, #KEYS do
  local member = KEYS[at]
  if redis.call('ZSCORE', MESSAGES, member) then
    count = count + 1
    local id = id_of(member)
    if not m.pubrels[id] then
      local json = redis.call('GET', member)
      if json then
        -- A quote inside a string is escaped, so that neither name can stand in one.
        json = string.gsub(json, '"packetType"%s*:%s*"%a*"', '"packetType":"PUBREL"', 1)
        json = string.gsub(json, '"payload"%s*:%s*"[^"]*"', '"payload":""', 1)
      else
        json = '{"packetId":' .. string.format('%d', id) .. ARGV[3]
      end
      if ARGV[2] == '0' then
        redis.call('SET', member, json)
      else
        redis.call('SET', member, json, 'PXAT', ARGV[2])
      end
      m.pubrels[id] = true
      m.pubrel_count = m.pubrel_count + 1
      m.dirty = true
    end
  end
end
if m.dirty then
  save(m)
end
return count
