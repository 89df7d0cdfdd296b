-- ARGV: serial, most entries, most bytes (0 = no contents). Whether there is more; member, score,
-- JSON, expiry in milliseconds (-1 = none), the owner's bytes of each entry; member and score of
-- those without a string.
local limit, bytes_max = tonumber(ARGV[2]), tonumber(ARGV[3])
local found = redis.call('ZRANGEBYSCORE', MESSAGES, '(' .. ARGV[1], '+inf', 'WITHSCORES',
  'LIMIT', 0, limit + 1)
local extras = redis.call('HLEN', OURS) > 1
local page, missing, size, more = {}, {}, 0, 0
for at = 1, #found, 2 do
  if at > 2 * limit then
    more = 1
    break
  end
  local member = found[at]
  local json = redis.call('GET', member)
  if json then
    size = size + #json
    if #page > 0 and size > bytes_max then
      more = 1
      break
    end
    page[#page + 1] = member
    page[#page + 1] = found[at + 1]
    page[#page + 1] = json
    page[#page + 1] = redis.call('PEXPIRETIME', member)
    page[#page + 1] = extras and redis.call('HGET', OURS, id_of(member)) or ''
  else
    missing[#missing + 1] = member
    missing[#missing + 1] = found[at + 1]
  end
end
return {more, page, missing}
