-- ARGV: epoch, beginning of the members.
local m = load()
local epoch = tonumber(ARGV[1])
if epoch < m.epoch then
  return fenced(m, ARGV[1])
end
m.epoch = epoch
m.serial = last_serial(m, last_packet_id())
save(m)
