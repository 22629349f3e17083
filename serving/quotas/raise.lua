-- Raises accounts to what the ledger knows, and declares them whole. KEYS: the marker, then one account per budget.
-- ARGV[1]: per account {start of the window, used, milliseconds to keep it}; ARGV[2]: '1' to set the marker.

local now_s = tonumber(redis.call('TIME')[1])
for i, known in ipairs(cmsgpack.unpack(ARGV[1])) do
  local window, used, kept_ms = known[1], known[2], known[3]
  local raw = redis.call('GET', KEYS[i + 1])
  local row = raw and cmsgpack.unpack(raw) or {w = 0, u = 0, l = 0, t = 0, r = 0, p = {}}
  if row.w < window and window <= now_s then
    if row.w > 0 then row.u = 0 end
    row.w = window
  end
  if row.w == window and row.u < used then
    row.u = used
    redis.call('SET', KEYS[i + 1], cmsgpack.pack(row), 'PX', kept_ms)
  end
end
if ARGV[2] == '1' then redis.call('SET', KEYS[1], '1') end
return 1
