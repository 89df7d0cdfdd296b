"""What ``planned`` has the server do in one step, in Lua."""

from __future__ import annotations

from typing import Final

from perdure.storage.redis.commands import Script

# Both read the expiry, the first four bytes of a value, in the server.
SWEEP: Final = Script(
    """
local all, gone = redis.call('HGETALL', KEYS[1]), {}
local now = tonumber(ARGV[1])
for i = 1, #all, 2 do
  local a, b, c, d = string.byte(all[i + 1], 1, 4)
  if d and ((a * 256 + b) * 256 + c) * 256 + d <= now then gone[#gone + 1] = all[i] end
end
for i = 1, #gone, 500 do
  redis.call('HDEL', KEYS[1], unpack(gone, i, math.min(i + 499, #gone)))
end
return #gone
"""
)

# ARGV[1]: which bit of a field's first byte decides. What is in the new place already is newer.
SPLIT: Final = Script(
    """
local all, bit = redis.call('HGETALL', KEYS[1]), tonumber(ARGV[1])
for i = 1, #all, 2 do
  local field = all[i]
  local half = math.floor(string.byte(field, 1) / 2 ^ (7 - bit)) % 2
  if bit == 7 then field = string.sub(field, 2) end
  redis.call('HSETNX', KEYS[2 + half], field, all[i + 1])
end
redis.call('DEL', KEYS[1])
return #all / 2
"""
)

# A plan follows the one that was read, so that nobody turns it back.
FOLLOW: Final = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
)

SCRIPTS: Final = (SWEEP, SPLIT, FOLLOW)
