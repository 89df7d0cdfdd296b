-- Device queues, layout "compact": one hash for each client.
--
--   field "m"        the queue's own numbers (META below)
--   field "i"        packet identifiers in order, two bytes each; only while the queue is irregular
--   field <id>       the entry with that packet identifier: flags (1), serial (7), [deadline (7)],
--                    length of the head (2 or 4), head, payload
--
-- Regular: the identifiers between `head` and `last_id`, counted round the wrap, are in the order
-- of the serials, so that no order need be kept. Identifiers that are given from outside may break
-- that; then the order is written down in "i" until the queue is empty.
-- `first`: no PUBLISH stands before it, however many PUBREL entries and holes do.
-- Integers are big-endian; times are microseconds.

local META = '>BBI7I7I7I2I2I2I2I7'
local PUBRELS_AT = 30
local VERSION = 1
local IDS = 65535
local PUBREL, DEADLINE, LONG = 1, 8, 16
local SHALLOW = 128
local PAIRS_MAX = 500
local NOTHING = '\0\0\0\0\0\0\0\0\0\0\0'

local function has(flags, bit)
  return flags % (bit * 2) >= bit
end

local function load(key)
  local raw = redis.call('HGET', key, 'm')
  if not raw then
    return nil
  end
  local version, irregular, epoch, position, serial, last_id, head, first, pubrels, soonest =
    struct.unpack(META, raw)
  if version ~= VERSION then
    return nil, redis.error_reply('FORMAT the queue was written by another release')
  end
  return {
    irregular = irregular, epoch = epoch, position = position, serial = serial,
    last_id = last_id, head = head, first = first, pubrels = pubrels, soonest = soonest,
  }
end

local function fresh()
  return {
    irregular = 0, epoch = 0, position = 0, serial = 0,
    last_id = 0, head = 0, first = 0, pubrels = 0, soonest = 0,
  }
end

local function packed(m)
  return struct.pack(META, VERSION, m.irregular, m.epoch, m.position, m.serial,
    m.last_id, m.head, m.first, m.pubrels, m.soonest)
end

local function save(key, m)
  redis.call('HSET', key, 'm', packed(m))
end

-- How many entries there are.
local function depth(key, m)
  return redis.call('HLEN', key) - 1 - m.irregular
end

-- The queue of an owner, or an error; nothing for an unknown client.
local function owned(key, epoch)
  local m, problem = load(key)
  if not m then
    return nil, problem
  end
  if m.epoch ~= tonumber(epoch) then
    return nil, redis.error_reply(
      string.format('FENCED the queue belongs to epoch %.0f, not %s', m.epoch, epoch))
  end
  return m
end

-- All identifiers in order, some of which may be gone.
local function ordered(key, m, count)
  local ids = {}
  if m.irregular == 1 then
    local index = redis.call('HGET', key, 'i')
    for at = 1, #index, 2 do
      ids[#ids + 1] = struct.unpack('>I2', index, at)
    end
    return ids
  end
  if count == 0 then
    return ids
  end
  local span = (m.last_id - m.head) % IDS
  if span < 4 * count + 64 then
    local id = m.head
    for _ = 0, span do
      ids[#ids + 1] = id
      id = id % IDS + 1
    end
    return ids
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local id = tonumber(field)
    if id then
      ids[#ids + 1] = id
    end
  end
  local head = m.head
  table.sort(ids, function(a, b) return (a - head) % IDS < (b - head) % IDS end)
  return ids
end

local function write_index(key, m, ids)
  local parts = {}
  for at = 1, #ids do
    parts[at] = struct.pack('>I2', ids[at])
  end
  m.irregular = 1
  redis.call('HSET', key, 'i', table.concat(parts))
end

-- Begin with a later identifier: nothing stands before it any more.
local function begin_with(m, id)
  if (m.first - m.head) % IDS < (id - m.head) % IDS then
    m.first = id
  end
  m.head = id
end

-- Begin with the first identifier that is there; there must be one.
local function advance(key, m)
  local id = m.head
  while redis.call('HEXISTS', key, id) == 0 do
    id = id % IDS + 1
  end
  begin_with(m, id)
end

-- Where the entries after a serial begin in the order.
local function find(key, ids, after)
  local low, high = 1, #ids + 1
  while low < high do
    local at = math.floor((low + high) / 2)
    local probe, record = at, nil
    while probe < high do
      record = redis.call('HGET', key, ids[probe])
      if record then
        break
      end
      probe = probe + 1
    end
    if not record then
      high = at
    else
      local _, serial = struct.unpack('>BI7', record)
      if serial <= after then
        low = probe + 1
      else
        high = at
      end
    end
  end
  return low
end

-- Note that an entry goes; what is told of it.
local function gone(m, id, record)
  local flags, serial = struct.unpack('>BI7', record)
  local is_pubrel = has(flags, PUBREL)
  if is_pubrel then
    m.pubrels = m.pubrels - 1
  end
  return struct.pack('>I7I2B', serial, id, is_pubrel and 1 or 0)
end

-- `append` where anything may happen.
local function append_any(keys, args)
  local key = keys[1]
  local m, problem = load(key)
  if problem then
    return problem
  end
  m = m or fresh()
  local limit = tonumber(args[1])
  local heads = {}
  local position, serial = m.position, m.serial
  for at = 2, #args do
    local new_position, new_serial, id, flags = struct.unpack('>I8I8I2B', args[at])
    if new_position > 0 and new_position <= position then
      heads[at] = false
    else
      if new_position > 0 then
        position = new_position
      end
      if new_serial == 0 then
        new_serial = serial + 1
      elseif new_serial <= serial then
        return redis.error_reply(
          string.format('SERIAL %.0f does not follow %.0f', new_serial, serial))
      end
      serial = new_serial
      heads[at] = {new_serial, id, flags}
    end
  end

  local count = redis.call('HLEN', key)
  if count > 0 then
    count = count - 1 - m.irregular
  end
  local index = nil
  local waiting = {'HSET', key}
  local function flush()
    if #waiting > 2 then
      redis.call(unpack(waiting))
      waiting = {'HSET', key}
    end
  end
  local function irregular()
    if not index then
      index = ordered(key, m, count)
      m.irregular = 1
    end
  end
  -- Take an identifier out that is needed again; what became of it, or nothing.
  local function displace(id)
    local record = redis.call('HGET', key, id)
    if not record then
      return nil
    end
    redis.call('HDEL', key, id)
    count = count - 1
    return gone(m, id, record)
  end
  -- Make room for an identifier in the order; what had to go.
  local function place(id)
    if count == 0 then
      if m.irregular == 1 then
        flush()
        redis.call('HDEL', key, 'i')
        m.irregular, index = 0, nil
      end
      m.head, m.first = id, id
      return nil
    end
    if m.irregular == 0 then
      local span = (m.last_id - m.head) % IDS
      if (id - m.head) % IDS > span then
        return nil
      end
      flush()
      advance(key, m)
      if (id - m.head) % IDS > (m.last_id - m.head) % IDS then
        return nil
      end
    end
    flush()
    local trimmed = displace(id)
    if count == 0 then
      return place(id) or trimmed
    end
    if m.irregular == 0 then
      if trimmed and id == m.head then
        advance(key, m)
        if (id - m.head) % IDS > (m.last_id - m.head) % IDS then
          return trimmed
        end
      end
      irregular()
    end
    irregular()
    for at = 1, #index do
      if index[at] == id then
        table.remove(index, at)
        break
      end
    end
    return trimmed
  end
  -- Take the oldest PUBLISH entries out; they and the identifiers before them.
  local function trim(excess, trimmed)
    flush()
    if m.irregular == 0 then
      local id, from_head = m.first, m.first == m.head
      for _ = 0, (m.last_id - m.first) % IDS do
        if excess == 0 then
          break
        end
        local record = redis.call('HGET', key, id)
        if record and not has(string.byte(record), PUBREL) then
          redis.call('HDEL', key, id)
          count = count - 1
          excess = excess - 1
          trimmed[#trimmed + 1] = gone(m, id, record)
        elseif record then
          from_head = false
        end
        id = id % IDS + 1
        m.first = id
        if from_head then
          m.head = id
        end
      end
      return
    end
    irregular()
    local step, rest = 1, {}
    while excess > 0 and step <= #index do
      local id = index[step]
      local record = redis.call('HGET', key, id)
      if record and not has(string.byte(record), PUBREL) then
        redis.call('HDEL', key, id)
        count = count - 1
        excess = excess - 1
        trimmed[#trimmed + 1] = gone(m, id, record)
      elseif record then
        rest[#rest + 1] = id
      end
      step = step + 1
    end
    for at = step, #index do
      rest[#rest + 1] = index[at]
    end
    index = rest
  end

  local out = {}
  for at = 2, #args do
    local entry = heads[at]
    if not entry then
      out[#out + 1] = struct.pack('>I7I2I2', 0, 0, 0)
    else
      local arg = args[at]
      local new_serial, id, flags = entry[1], entry[2], entry[3]
      if id == 0 then
        id = m.last_id % IDS + 1
      end
      local trimmed = {place(id)}
      if m.irregular == 1 then
        irregular()
        index[#index + 1] = id
      end
      waiting[#waiting + 1] = id
      waiting[#waiting + 1] = struct.pack('>BI7', flags, new_serial) .. string.sub(arg, 20)
      if #waiting > 500 then
        flush()
      end
      count = count + 1
      m.last_id = id
      if has(flags, PUBREL) then
        m.pubrels = m.pubrels + 1
      end
      if has(flags, DEADLINE) then
        local deadline = struct.unpack('>I7', arg, 20)
        if m.soonest == 0 or deadline < m.soonest then
          m.soonest = deadline
        end
      end
      local excess = count - m.pubrels - limit
      if excess > 0 then
        trim(excess, trimmed)
      elseif m.irregular == 0 and (m.last_id - m.head) % IDS >= limit then
        -- So that the next `append` need not come here.
        flush()
        advance(key, m)
      end
      out[#out + 1] = struct.pack('>I7I2I2', new_serial, id, #trimmed) .. table.concat(trimmed)
    end
  end
  m.position, m.serial = position, serial
  waiting[#waiting + 1] = 'm'
  waiting[#waiting + 1] = packed(m)
  flush()
  if index then
    write_index(key, m, index)
  end
  return table.concat(out)
end

-- KEYS: queue. ARGV: limit, then for each entry position (8), serial (8), packet identifier (2),
-- flags (1), and the record after its serial. For each entry the answer has serial (7), packet
-- identifier (2), number of trimmed (2), and for each of them serial (7), identifier (2), state (1).
--
-- Nearly always nothing has to go: the identifiers follow each other, and even without the holes
-- between them there are not more than the limit. Then nothing need be counted or looked up, and
-- all is written at once. Whatever else may be, nothing has been written when that is found out.
local function append(keys, args)
  local key, limit, count = keys[1], tonumber(args[1]), #args
  if count > PAIRS_MAX then
    return append_any(keys, args)
  end
  local version, irregular, epoch, position, serial, last_id, head, first, pubrels, soonest =
    VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 0
  local raw = redis.call('HGET', key, 'm')
  if raw then
    version, irregular, epoch, position, serial, last_id, head, first, pubrels, soonest =
      struct.unpack(META, raw)
  end
  if version ~= VERSION or irregular == 1 then
    return append_any(keys, args)
  end
  local set, out, at_set = {'HSET', key, 'm', raw}, {}, 4
  for at = 2, count do
    local arg = args[at]
    local new_position, new_serial, id, flags = struct.unpack('>I8I8I2B', arg)
    if new_position > 0 and new_position <= position then
      out[at - 1] = NOTHING
    else
      if new_position > 0 then
        position = new_position
      end
      if new_serial == 0 then
        new_serial = serial + 1
      end
      if id == 0 then
        id = last_id % IDS + 1
      end
      if head == 0 then
        head, first = id, id
      else
        local span = (id - head) % IDS
        if span <= (last_id - head) % IDS or span >= limit then
          return append_any(keys, args)
        end
      end
      if new_serial <= serial or has(flags, PUBREL) then
        return append_any(keys, args)
      end
      if has(flags, DEADLINE) then
        local deadline = struct.unpack('>I7', arg, 20)
        if soonest == 0 or deadline < soonest then
          soonest = deadline
        end
      end
      set[at_set + 1] = id
      set[at_set + 2] = struct.pack('>BI7', flags, new_serial) .. string.sub(arg, 20)
      at_set = at_set + 2
      serial, last_id = new_serial, id
      out[at - 1] = struct.pack('>I7I2I2', new_serial, id, 0)
    end
  end
  set[4] = struct.pack(META, VERSION, 0, epoch, position, serial, last_id, head, first, pubrels,
    soonest)
  redis.call(unpack(set))
  return count == 2 and out[1] or table.concat(out)
end

-- The queue's numbers, its depth and its size.
local function numbers(key, m)
  return {packed(m), depth(key, m), redis.call('MEMORY', 'USAGE', key)}
end

-- ARGV: epoch. The queue's numbers.
local function take(keys, args)
  local key = keys[1]
  local m, problem = load(key)
  if problem then
    return problem
  end
  m = m or fresh()
  local epoch = tonumber(args[1])
  if epoch < m.epoch then
    return redis.error_reply(
      string.format('FENCED the queue belongs to epoch %.0f, not %s', m.epoch, args[1]))
  end
  m.epoch = epoch
  save(key, m)
  return numbers(key, m)
end

local function stats(keys)
  local m, problem = load(keys[1])
  if not m then
    return problem or false
  end
  return numbers(keys[1], m)
end

-- ARGV: epoch, packet identifiers. How many were deleted.
local function acknowledge(keys, args)
  local key = keys[1]
  local raw = redis.call('HGET', key, 'm')
  if not raw or #args == 1 then
    local _, problem = owned(key, args[1])
    return problem or 0
  end
  local version, _, epoch = struct.unpack('>BBI7', raw)
  local pubrels = string.byte(raw, PUBRELS_AT) * 256 + string.byte(raw, PUBRELS_AT + 1)
  if version == VERSION and epoch == tonumber(args[1]) and pubrels == 0 and #args < 1000 then
    args[1] = key
    return redis.call('HDEL', unpack(args))
  end
  local m, problem = owned(key, args[1])
  if not m then
    return problem or 0
  end
  local count = 0
  for at = 2, #args do
    local record = redis.call('HGET', key, args[at])
    if record then
      gone(m, 0, record)
      count = count + redis.call('HDEL', key, args[at])
    end
  end
  if m.pubrels ~= pubrels then
    save(key, m)
  end
  return count
end

-- ARGV: epoch, lifetime, packet identifiers. How many are PUBREL now.
local function release(keys, args)
  local key = keys[1]
  local m, problem = owned(key, args[1])
  if not m then
    return problem or 0
  end
  local forget = tonumber(args[2])
  local deadline = forget > 0 and struct.pack('>I7', forget) or ''
  local count, pubrels = 0, m.pubrels
  for at = 3, #args do
    local record = redis.call('HGET', key, args[at])
    if record then
      count = count + 1
      local flags, serial = struct.unpack('>BI7', record)
      if not has(flags, PUBREL) then
        local start = has(flags, DEADLINE) and 16 or 9
        local length
        if has(flags, LONG) then
          length = 4 + struct.unpack('>I4', record, start)
        else
          length = 2 + struct.unpack('>I2', record, start)
        end
        if has(flags, DEADLINE) then
          flags = flags - DEADLINE
        end
        flags = flags + PUBREL + (forget > 0 and DEADLINE or 0)
        redis.call('HSET', key, args[at], struct.pack('>BI7', flags, serial) .. deadline
          .. string.sub(record, start, start + length - 1))
        m.pubrels = m.pubrels + 1
      end
    end
  end
  if m.pubrels ~= pubrels then
    if forget > 0 and (m.soonest == 0 or forget < m.soonest) then
      m.soonest = forget
    end
    save(key, m)
  end
  return count
end

-- ARGV: epoch, serial. How many entries up to it were deleted.
local function trim_through(keys, args)
  local key = keys[1]
  local m, problem = owned(key, args[1])
  if not m then
    return problem or 0
  end
  local through = tonumber(args[2])
  local before = depth(key, m)
  local ids = ordered(key, m, before)
  local count, at = 0, 1
  while at <= #ids do
    local record = redis.call('HGET', key, ids[at])
    if record then
      local _, serial = struct.unpack('>BI7', record)
      if serial > through then
        break
      end
      gone(m, 0, record)
      redis.call('HDEL', key, ids[at])
      count = count + 1
    end
    at = at + 1
  end
  if count > 0 then
    if m.irregular == 1 then
      local rest = {}
      for left = at, #ids do
        rest[#rest + 1] = ids[left]
      end
      write_index(key, m, rest)
    elseif ids[at] then
      begin_with(m, ids[at])
    end
    save(key, m)
  end
  return count
end

-- ARGV: epoch. Whether there was a queue.
local function discard(keys, args)
  local m, problem = owned(keys[1], args[1])
  if not m then
    return problem or 0
  end
  return redis.call('UNLINK', keys[1])
end

-- ARGV: serial, most entries, most bytes. Whether there is more, and identifiers with records: of
-- a shallow queue all of them without order, of a deep one those after the serial, in order.
local function read(keys, args)
  local key = keys[1]
  local m, problem = load(key)
  if not m then
    return problem or {0, {}}
  end
  local bytes_max = tonumber(args[3])
  local count = depth(key, m)
  if count <= SHALLOW then
    local all = redis.call('HGETALL', key)
    local size = 0
    for at = 2, #all, 2 do
      size = size + #all[at]
    end
    if size <= bytes_max then
      return {0, all}
    end
  end
  local after, limit = tonumber(args[1]), tonumber(args[2])
  local ids = ordered(key, m, count)
  local page, size, more = {}, 0, 0
  for at = find(key, ids, after), #ids do
    local record = redis.call('HGET', key, ids[at])
    if record then
      size = size + #record
      if #page > 0 and (#page >= 2 * limit or size > bytes_max) then
        more = 1
        break
      end
      page[#page + 1] = tostring(ids[at])
      page[#page + 1] = record
    end
  end
  return {more, page}
end

-- ARGV: pairs of serial and packet identifier. Deletes those that are still the same entries.
local function purge(keys, args)
  local key = keys[1]
  local m, problem = load(key)
  if not m then
    return problem or 0
  end
  local count, pubrels = 0, m.pubrels
  for at = 1, #args, 2 do
    local record = redis.call('HGET', key, args[at + 1])
    if record then
      local _, serial = struct.unpack('>BI7', record)
      if serial == tonumber(args[at]) then
        gone(m, 0, record)
        count = count + redis.call('HDEL', key, args[at + 1])
      end
    end
  end
  if m.pubrels ~= pubrels then
    save(key, m)
  end
  return count
end

-- ARGV: now, most entries to delete, most entries to look at, the serial after which to go on, the
-- earliest deadline so far. How many were deleted, the serial to go on after (-1 = at the end), the
-- earliest deadline of what was passed.
local function sweep(keys, args)
  local key = keys[1]
  local m, problem = load(key)
  if not m then
    return problem or {0, -1, 0}
  end
  local now, limit, look = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local after, soonest = tonumber(args[4]), tonumber(args[5])
  if m.soonest == 0 or m.soonest > now then
    return {0, -1, 0}
  end
  local ids = ordered(key, m, depth(key, m))
  local count, passed, seen = 0, after, 0
  for at = find(key, ids, after), #ids do
    local record = redis.call('HGET', key, ids[at])
    if record then
      local flags, serial = struct.unpack('>BI7', record)
      if count >= limit or seen >= look then
        save(key, m)
        return {count, passed, soonest}
      end
      seen = seen + 1
      passed = serial
      if has(flags, DEADLINE) then
        local deadline = struct.unpack('>I7', record, 9)
        if deadline <= now then
          gone(m, 0, record)
          redis.call('HDEL', key, ids[at])
          count = count + 1
        elseif soonest == 0 or deadline < soonest then
          soonest = deadline
        end
      end
    end
  end
  m.soonest = soonest
  save(key, m)
  return {count, -1, soonest}
end

local function register(name, callback, ...)
  redis.register_function{
    function_name = 'perdure_' .. name .. '_{suffix}', callback = callback, flags = {...},
  }
end

register('append', append)
-- What frees memory, or a fence, must work when there is none left.
register('take', take, 'allow-oom')
register('acknowledge', acknowledge, 'allow-oom')
register('release', release, 'allow-oom')
register('trim', trim_through, 'allow-oom')
register('discard', discard, 'allow-oom')
register('purge', purge, 'allow-oom')
register('sweep', sweep, 'allow-oom')
register('read', read, 'no-writes')
register('stats', stats, 'no-writes')
