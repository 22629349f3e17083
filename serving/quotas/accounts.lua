-- `account.take` where the accounts of all gateways meet. KEYS: the marker, then one account per ask.
-- ARGV[1]: a batch, as `account.Batch`. Answers `account.Verdicts`.

local BUDGET, RATE, FAR_SHARE, RECALL_MS, KNOWN_MS, KEPT_MS = 0, 2, 8, 300, 600000, 3600000
local floor, max, min = math.floor, math.max, math.min

if redis.call('EXISTS', KEYS[1]) == 0 then
  return cmsgpack.pack({false, {}, {}})
end

local batch = cmsgpack.unpack(ARGV[1])
local process, lease_ms, asks, requests, turn = batch[1], batch[2], batch[3], batch[4], batch[5]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + floor(clock[2] / 1000)
local rows, mine, held, slack = {}, {}, {}, {}

local function state(i)
  local a = asks[i]
  local ask = {kind = a[1], limit = a[2], size = a[3], per_ms = a[4], window = a[5], ends = a[6], hard = a[7],
               acked = a[8], spent = a[9], held = a[10], slack = a[11], extra = a[12]}
  asks[i] = ask
  local raw = redis.call('GET', KEYS[i + 1])
  local row = raw and cmsgpack.unpack(raw) or {w = 0, u = 0, l = ask.size, t = now, r = 0, p = {}}
  local all_held, all_slack = ask.held, ask.slack
  for name, holding in pairs(row.p) do
    if holding[4] <= now - KNOWN_MS then
      row.p[name] = nil
    elseif holding[4] <= now then
      holding[1], holding[2] = 0, 0
    elseif name ~= process then
      all_held, all_slack = all_held + holding[1], all_slack + holding[2]
    end
  end
  if row.w < ask.window and ask.window * 1000 <= now then
    if row.w > 0 then row.u = 0 end
    row.w = ask.window
  end
  local known = row.p[process]
  if known and turn < known[5] then return false end
  local spent = max(0, ask.spent - (known and known[3] or ask.acked))
  row.u = row.u + spent
  if ask.kind == RATE then
    local back = max(0, now - row.t) * ask.per_ms + (known and known[1] or 0) - ask.held - spent
    row.l, row.t = max(-ask.size, min(ask.size - all_held, row.l + back)), now
  end
  mine[i] = {ask.held, ask.slack, ask.spent, now + lease_ms, turn}
  row.p[process] = mine[i]
  rows[i], held[i], slack[i] = row, all_held, all_slack
  return true
end

local function free(i)
  local ask, row = asks[i], rows[i]
  if ask.kind == RATE then return row.l end
  return ask.limit - held[i] - (ask.kind == BUDGET and row.u or 0)
end

local function give(i, amount)
  mine[i][1], held[i] = mine[i][1] + amount, held[i] + amount
  if asks[i].kind == RATE then rows[i].l = rows[i].l - amount end
end

local function decide(request)
  local waits = 0
  for place, pair in ipairs(request) do
    local i, amount = pair[1] + 1, pair[2]
    local there = free(i)
    if amount >= 0 and there < amount and asks[i].hard then
      if there + slack[i] - mine[i][2] < amount then return place end
      if waits == 0 then waits = place end
    end
  end
  if waits > 0 then
    rows[request[waits][1] + 1].r = now + RECALL_MS
    return -waits
  end
  for _, pair in ipairs(request) do give(pair[1] + 1, math.abs(pair[2])) end
  return 0
end

local function extra(i)
  if asks[i].extra <= 0 or rows[i].r > now then return 0 end
  local more = max(0, min(asks[i].extra, floor(free(i) / FAR_SHARE)))
  give(i, more)
  mine[i][2], slack[i] = mine[i][2] + more, slack[i] + more
  return more
end

local views, results = {}, {}
for i = 1, #asks do
  if not state(i) then return cmsgpack.pack({true, {}, {}}) end
end
for n, request in ipairs(requests) do results[n] = decide(request) end
for i, row in ipairs(rows) do
  if asks[i].hard and asks[i].kind ~= BUDGET and free(i) < 0 then row.r = now + RECALL_MS end
  local more = extra(i)
  views[i] = {row.u, held[i], slack[i], floor(row.l), more, row.r > now, row.w}
  redis.call('SET', KEYS[i + 1], cmsgpack.pack(row), 'PX', max(asks[i].ends - now, 0) + KEPT_MS)
end
return cmsgpack.pack({true, views, results})
