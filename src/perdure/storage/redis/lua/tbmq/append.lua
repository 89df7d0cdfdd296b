-- ARGV: limit, beginning of the members, then for each entry position (8), serial (8), identifier
-- (2), state (1), deadline in milliseconds (8); the JSON after its packet identifier; the owner's
-- bytes. For each entry the answer has serial (7), identifier (2), number of trimmed (2), and for
-- each of them serial (7), identifier (2), state (1).
local m = load()
local limit, base = tonumber(ARGV[1]), ARGV[2]
local last_id = last_packet_id()
local serial = last_serial(m, last_id)
local position = m.position
local serials = {}
for at = 3, #ARGV, 3 do
  local new_position, new_serial = struct.unpack('>I8I8', ARGV[at])
  if new_position == 0 or new_position > position then
    if new_position > 0 then
      position = new_position
    end
    if new_serial == 0 then
      new_serial = serial + 1
    elseif new_serial <= serial then
      return redis.error_reply(string.format('SERIAL %.0f does not follow %.0f', new_serial, serial))
    end
    serial = new_serial
    serials[at] = serial
  end
end

-- Ends the script here while a cluster moves the slot: identifiers begin with 1.
redis.call('EXISTS', base .. '0')
m.extras = has_extras(m)
local out = {}
local count = redis.call('ZCARD', MESSAGES)
for at = 3, #ARGV, 3 do
  local new_serial = serials[at]
  if not new_serial then
    out[#out + 1] = struct.pack('>I7I2I2', 0, 0, 0)
  else
    local _, _, id, state, deadline = struct.unpack('>I8I8I2BI8', ARGV[at])
    if id == 0 then
      id = last_id % IDS + 1
    end
    last_id = id
    local member = base .. string.format('%d', id)
    local trimmed = {}
    local taken = redis.call('ZSCORE', MESSAGES, member)
    if taken then
      trimmed[1] = drop(m, member, taken)
      count = count - 1
    end
    local json = '{"packetId":' .. string.format('%d', id) .. ARGV[at + 1]
    if deadline > 0 then
      redis.call('SET', member, json, 'PXAT', string.format('%.0f', deadline))
    else
      redis.call('SET', member, json)
    end
    redis.call('ZADD', MESSAGES, string.format('%.0f', new_serial), member)
    count = count + 1
    if ARGV[at + 2] ~= '' then
      redis.call('HSET', OURS, id, ARGV[at + 2])
      m.extras = true
    end
    if state == 1 then
      m.pubrels[id] = true
      m.pubrel_count = m.pubrel_count + 1
      m.dirty = true
    end
    local rank = 0
    while count - m.pubrel_count > limit do
      local oldest = redis.call('ZRANGE', MESSAGES, rank, rank, 'WITHSCORES')
      if not oldest[1] then
        break
      end
      if m.pubrels[id_of(oldest[1])] then
        rank = rank + 1
      else
        trimmed[#trimmed + 1] = drop(m, oldest[1], oldest[2])
        count = count - 1
      end
    end
    out[#out + 1] = struct.pack('>I7I2I2', new_serial, id, #trimmed) .. table.concat(trimmed)
  end
end
m.position, m.serial = position, serial
save(m)
if redis.call('EXISTS', LAST) == 0 or next(serials) then
  redis.call('SET', LAST, string.format('%d', last_id))
end
return table.concat(out)
