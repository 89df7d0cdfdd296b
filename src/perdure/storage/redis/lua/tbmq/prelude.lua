-- Device queues as TBMQ 2.x stores them, and one more key with what it has no place for.
--
--   <base>_messages            sorted set: score = serial, member = name of the entry's key
--   <base>_messages_<id>       string: the entry as JSON; its expiry is the server's
--   <base>_last_packet_id      string: decimal
--   <base>_perdure             hash, ours: "m" numbers, "r" identifiers of PUBREL entries (2 each),
--                              <id> opaque bytes of the owner
--
-- KEYS[1..3] are messages, last packet id and ours. Keys of entries that a script decides about are
-- declared too; those that it only looks at, that it makes, or that it deletes because a limit says
-- so, are not known before. While a cluster moves the slot, such a key may be elsewhere, and the
-- server ends a script that asks for it. So a script that writes to such keys asks for one that
-- never is there before it writes anything, and the client tries again until the slot has moved.

local MESSAGES, LAST, OURS = KEYS[1], KEYS[2], KEYS[3]
local META = '>BI7I7I7'
local IDS = 65535
local IS_PUBREL = '"packetType"%s*:%s*"PUBREL"'

local function id_of(member)
  return tonumber(string.match(member, '_(%d+)$') or '0')
end

local function number(score)
  return tonumber(score)
end

-- Whether anything is known of the client.
local function known()
  return redis.call('EXISTS', MESSAGES, LAST, OURS) > 0
end

-- Identifiers of PUBREL entries as a set, and their number.
local function unpack_ids(raw)
  local set, count = {}, 0
  for at = 1, #raw, 2 do
    set[struct.unpack('>I2', raw, at)] = true
    count = count + 1
  end
  return set, count
end

local function look_for_pubrels()
  local set, count = {}, 0
  for _, member in ipairs(redis.call('ZRANGE', MESSAGES, 0, -1)) do
    local json = redis.call('GET', member)
    if json and string.find(json, IS_PUBREL) then
      set[id_of(member)] = true
      count = count + 1
    end
  end
  return set, count
end

-- The last packet identifier; where TBMQ has deleted it and left entries, that of the newest.
local function last_packet_id()
  local last = tonumber(redis.call('GET', LAST) or '0') or 0
  if last == 0 then
    local newest = redis.call('ZRANGE', MESSAGES, -1, -1)
    last = newest[1] and id_of(newest[1]) or 0
  end
  return last
end

-- Our own numbers; of a queue that only TBMQ has written, as they are there.
local function load()
  local found = redis.call('HMGET', OURS, 'm', 'r')
  local m = {epoch = 0, position = 0, serial = 0, dirty = false, fields = 0}
  if found[1] then
    local version
    version, m.epoch, m.position, m.serial = struct.unpack(META, found[1])
    m.pubrels, m.pubrel_count = unpack_ids(found[2] or '')
    m.fields = found[2] and 2 or 1
  else
    m.pubrels, m.pubrel_count = look_for_pubrels()
    m.dirty = m.pubrel_count > 0
  end
  return m
end

local function packed_ids(set)
  local parts = {}
  for id in pairs(set) do
    parts[#parts + 1] = struct.pack('>I2', id)
  end
  return table.concat(parts)
end

local function save(m)
  redis.call('HSET', OURS, 'm', struct.pack(META, 1, m.epoch, m.position, m.serial))
  if m.dirty then
    if m.pubrel_count > 0 then
      redis.call('HSET', OURS, 'r', packed_ids(m.pubrels))
    else
      redis.call('HDEL', OURS, 'r')
    end
  end
end

-- Whether the owner's bytes are kept of any entry.
local function has_extras(m)
  return redis.call('HLEN', OURS) > m.fields
end

-- The serial of the last entry ever. TBMQ counts on from the set, and where that is empty, from the
-- packet identifier.
local function last_serial(m, last_id)
  local last = redis.call('ZRANGE', MESSAGES, -1, -1, 'WITHSCORES')
  local floor = m.fields > 0 and m.serial or last_id
  return last[2] and math.max(m.serial, number(last[2])) or floor
end

local function fenced(m, epoch)
  return redis.error_reply(
    string.format('FENCED the queue belongs to epoch %.0f, not %s', m.epoch, epoch))
end

-- Forget an entry whose string goes too; what is told of it.
local function drop(m, member, score)
  local id = id_of(member)
  local state = 0
  redis.call('ZREM', MESSAGES, member)
  redis.call('DEL', member)
  if m.pubrels[id] then
    m.pubrels[id] = nil
    m.pubrel_count = m.pubrel_count - 1
    m.dirty = true
    state = 1
  end
  if m.extras then
    redis.call('HDEL', OURS, id)
  end
  return struct.pack('>I7I2B', number(score), id, state)
end
