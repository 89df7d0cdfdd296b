-- ARGV: serial, most entries. Member, score and expiry in milliseconds of the next entries (-1 =
-- never, -2 = without a string).
local found = redis.call('ZRANGEBYSCORE', MESSAGES, '(' .. ARGV[1], '+inf', 'WITHSCORES',
  'LIMIT', 0, ARGV[2])
local page = {}
for at = 1, #found, 2 do
  page[#page + 1] = found[at]
  page[#page + 1] = found[at + 1]
  page[#page + 1] = redis.call('PEXPIRETIME', found[at])
end
return page
