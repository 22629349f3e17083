// The overview: one row per tenant × model, and the charts of the row that is selected.

import { LiveChart, STAGES, classColour, colour, sparkline } from "./charts.js";
import { figure, money, percent, threeDigits, NONE } from "./figures.js";
import { LiveFeed, bindBadge } from "./live.js";
import { Past, bindRanges } from "./past.js";

const page = document.getElementById("overview");
const words = JSON.parse(document.getElementById("overview-words").textContent);
const objective = words.objective;
const feed = new LiveFeed(page.dataset.scope);
const body = page.querySelector("[data-rows]");
const only = page.dataset.model || null;
const past = new Past(page.dataset.scope, only);
const chart = (name, options) => {
  const element = page.querySelector(`[data-chart="${name}"]`);
  return element && new LiveChart(element, options);
};
const charts = {
  rps: chart("rps", { unit: "req/s", least: 1 }),
  latency: chart("latency", { unit: "ms", least: 10 }),
  batch: chart("batch", { unit: words.rows, least: 4 }),
  stages: chart("stages", { unit: "ms", stacked: true, least: 1 }),
  queue: chart("queue", { unit: "", least: 4 }),
  device: chart("device", { max: 1, format: percent, axis: (tick) => `${Math.round(tick * 100)} %` }),
};
const CLASSES = ["interactive", "standard", "batch"]; // the tightest promise first
const RISKY_TIMES = 5; // up to so many times what the objective lets be late is a risk, and more is broken
const MAX_LINES = 8;
const MAX_ROWS = 100;
let selected = null;
let isHovered = false;

const keyOf = (row) => `${row.tenant_id} ${row.model}`;
const isOurs = (row) => !only || row.model === only;
// What was asked for and is no model of the tenant's: it has no page, and nothing is promised for it.
const isUnknown = (row) => !row.version_id && !row.target_ms;
const nameOf = (row) => (isUnknown(row) ? words.no_model : row.model);
// Rows without a tenant count what came without a valid key: failures of nobody in particular.
const shown = (frame) => frame.rows.filter((row) => row.tenant_id && isOurs(row));

// ---------------------------------------------------------------- the data, by second

function timeline() {
  const frames = feed.frames;
  if (!frames.length) return { times: [], at: new Map() };
  const first = frames[0].at, last = frames.at(-1).at;
  const at = new Map(frames.map((frame) => [frame.at, frame]));
  return { times: Array.from({ length: last - first + 1 }, (_, i) => first + i), at };
}

function seriesOf(frames) {
  const found = new Map();
  const names = { tenants: {}, versions: {} };
  for (const frame of frames) {
    Object.assign(names.tenants, frame.names?.tenants);
    Object.assign(names.versions, frame.names?.versions);
    for (const row of shown(frame)) found.set(keyOf(row), row);
  }
  const counts = {};
  const rank = ([key, row]) => `${isUnknown(row) ? "9" : CLASSES.indexOf(row.sla_class)} ${key}`;
  return [...found.entries()].sort((a, b) => (rank(a) < rank(b) ? -1 : 1)).map(([key, row]) => {
    const index = (counts[row.sla_class] = (counts[row.sla_class] ?? -1) + 1);
    const [slug, tenant] = names.tenants[row.tenant_id] ?? [row.tenant_id, row.tenant_id];
    return { key, row, slug, tenant, label: page.dataset.scope === "all" ? `${slug} · ${nameOf(row)}` : nameOf(row), colour: classColour(row.sla_class, index) };
  });
}

function column(series, { times, at }, pick) {
  return times.map((time) => {
    const frame = at.get(time);
    if (!frame?.covered) return null;
    const row = frame.rows.find((one) => keyOf(one) === series.key);
    return row ? pick(row) ?? null : null;
  });
}

// ---------------------------------------------------------------- the table

const cell = (text, className = "num") => {
  const td = document.createElement("td");
  td.className = className;
  td.append(text);
  return td;
};

function verdict(kept) {
  if (kept === undefined || kept === null) return ["unknown", "secondary", "help-circle", words.unknown];
  if (kept >= objective) return ["kept", "green", "circle-check", words.kept];
  if (kept >= 1 - RISKY_TIMES * (1 - objective)) return ["risk", "yellow", "alert-circle", words.risk];
  return ["broken", "red", "alert-triangle", words.broken];
}

function keptCell(kept) {
  const [, hue, icon, word] = verdict(kept);
  const span = document.createElement("span");
  span.className = `badge tg-state bg-${hue}-lt`;
  span.innerHTML = `<i class="ti ti-${icon}" aria-hidden="true"></i>`;
  span.append(`${percent(kept)} ${word}`);
  return cell(span, "");
}

function nameCell(series) {
  const td = document.createElement("td");
  const model = document.createElement(isUnknown(series.row) ? "span" : "a");
  if (model.localName === "a") model.href = `${page.dataset.models}${series.row.model}/`;
  model.textContent = nameOf(series.row);
  const tenant = document.createElement("a");
  tenant.href = `${page.dataset.tenants}${series.slug}/`;
  tenant.textContent = series.tenant;
  tenant.className = "text-reset fw-medium";
  const below = document.createElement("div");
  below.className = "text-secondary small";
  below.append(model);
  td.append(tenant, below);
  return td;
}

function classCell(row) {
  const span = document.createElement("span");
  span.className = `tg-class tg-class-${row.sla_class}`;
  span.textContent = words[row.sla_class] ?? row.sla_class;
  return cell(span, "");
}

function latencyCell(row) {
  const isLate = row.p95 !== undefined && row.p95 > row.target_ms;
  const span = document.createElement("span");
  const small = document.createElement("span");
  small.className = "text-secondary";
  small.textContent = ` / ${figure(row.target_ms || null, "ms")}`; // an unknown model promises nothing
  const value = document.createElement("span");
  value.className = isLate ? "tg-bad fw-medium" : "fw-medium";
  value.textContent = row.p95 === undefined ? NONE : threeDigits(row.p95);
  span.append(value, small);
  return cell(span);
}

function rateCell(series, time) {
  const td = document.createElement("td");
  const box = document.createElement("div");
  box.className = "d-flex align-items-center gap-2 justify-content-end";
  const canvas = document.createElement("canvas");
  canvas.className = "tg-spark";
  const number = document.createElement("span");
  number.className = "tg-num text-nowrap";
  number.style.minWidth = "4.5rem";
  number.style.textAlign = "right";
  number.textContent = figure(series.row.rps, "req/s");
  box.append(canvas, number);
  td.append(box);
  requestAnimationFrame(() => sparkline(canvas, column(series, time, (row) => row.rps).slice(-120), series.colour));
  return td;
}

function tableRow(series, time) {
  const row = series.row;
  const tr = document.createElement("tr");
  tr.dataset.key = series.key;
  tr.setAttribute("aria-selected", series.key === selected);
  tr.tabIndex = 0;
  tr.append(
    nameCell(series), classCell(row), keptCell(row.kept), latencyCell(row), rateCell(series, time),
    cell(row.batch === undefined ? NONE : threeDigits(row.batch)), cell(String(row.pending ?? 0)),
    cell(figure(row.device_ms_s ?? 0, "ms/s")),
  );
  return tr;
}

// ---------------------------------------------------------------- everything, each second

function showFigures(last) {
  const rows = last?.covered ? shown(last) : [];
  const sum = (pick) => (rows.length ? rows.reduce((total, row) => total + (pick(row) ?? 0), 0) : null);
  const judged = rows.filter((row) => row.kept !== undefined);
  const counted = last?.covered ? last.rows.filter(isOurs) : [];
  const failed = last?.covered ? counted.flatMap((row) => Object.values(row.failed ?? {})).reduce((a, b) => a + b, 0) : null;
  const kept = judged.filter((row) => row.kept >= objective).length;
  const set = (name, value) => { const spot = page.querySelector(`[data-figure="${name}"]`); if (spot) spot.textContent = value; };
  set("kept", judged.length ? `${kept} / ${judged.length}` : NONE);
  set("rps", figure(sum((row) => row.rps)));
  set("failed", figure(failed));
  set("pending", sum((row) => row.pending) ?? NONE);
  set("tokens", figure(sum((row) => row.tokens_s)));
  set("device", figure(sum((row) => row.device_ms_s)));
  set("cost", rows.length ? money(sum((row) => row.cost_micro_s) * 3600) : NONE);
}

function showTable(series, time) {
  page.querySelector("[data-empty]").hidden = series.length > 0;
  page.querySelector("[data-filled]").hidden = series.length === 0;
  if (isHovered || body.contains(document.activeElement)) return updateSelection();
  body.replaceChildren(...series.slice(0, MAX_ROWS).map((one) => tableRow(one, time)));
  const more = page.querySelector("[data-more]");
  more.hidden = series.length <= MAX_ROWS;
  more.querySelector("[data-more-count]").textContent = series.length - MAX_ROWS;
}

function updateSelection() {
  for (const tr of body.children) tr.setAttribute("aria-selected", tr.dataset.key === selected);
}

function showCharts(series, time) {
  const lines = busiest(series);
  const line = (one, pick) => ({ label: one.label, colour: one.colour, values: column(one, time, pick) });
  charts.rps?.show(time.times, lines.map((one) => line(one, (row) => row.rps)));
  charts.batch?.show(time.times, lines.map((one) => line(one, (row) => row.batch)));
  charts.queue?.show(time.times, lines.map((one) => line(one, (row) => row.pending ?? 0)));
  const one = series.find((candidate) => candidate.key === selected) ?? series[0];
  for (const spot of page.querySelectorAll("[data-selected]")) spot.textContent = one ? `${one.tenant} · ${nameOf(one.row)}` : "–";
  if (one) {
    const pick = (label, tone, field, width, dash) => ({ label, colour: tone, width, dash, isLimit: Boolean(dash), values: column(one, time, (row) => row[field]) });
    const base = colour(one.row.sla_class);
    charts.latency?.show(time.times, [
      pick("p50", colour("axis"), "p50", 1.25),
      pick("p95", base, "p95", 2.25),
      pick("p99", `color-mix(in oklab, ${base} 45%, #f76707)`, "p99", 1.25),
      pick(words.target, colour("target"), "target_ms", 1.25, [5, 5]),
    ]);
    charts.stages?.show(time.times, STAGES.map((stage) => ({
      label: words[stage], colour: colour(stage), values: column(one, time, (row) => row.stages?.[stage]),
    })));
    showCloses(one.row);
  }
  showDevices(time);
}

// ---------------------------------------------------------------- a longer span, out of what was stored

function showPast(series) {
  const { starts, series: all } = past.answer ?? { starts: [], series: [] };
  const order = new Map(series.map((one, index) => [one.key, index]));
  const place = ({ key }) => order.get(key) ?? order.size;
  const found = all.filter((one) => one.labels.tenant).map((one, index) => pastLine(one, index, series));
  const lines = found.slice(0, MAX_LINES).sort((a, b) => place(a) - place(b)); // those of the table in its order
  const line = (one, metric) => ({ label: one.label, colour: one.colour, values: one.values[metric] });
  const draw = (name, drawn) => charts[name]?.show(starts, drawn, past.span, past.marks);
  draw("rps", lines.map((one) => line(one, "answered_s")));
  draw("batch", lines.map((one) => line(one, "batch_rows_mean")));
  draw("queue", lines.map((one) => line(one, "pending")));
  if (past.replicas?.series.length) {
    charts.device?.show(past.replicas.starts, past.replicas.series.slice(0, MAX_LINES).map(({ replica_id, model, values }, index) => (
      { label: `${model} ${replica_id.slice(-4)}`, colour: replicaColour(index), values: values.replica_busy_share }
    )), past.span, past.marks);
  } else draw("device", lines.map((one) => ({ ...line(one, "device_ms_s"), values: one.values.device_ms_s.map((ms) => (ms === null ? null : ms / 1000)) })));
  const one = found.find((each) => each.key === selected) ?? lines[0];
  for (const spot of page.querySelectorAll("[data-selected]")) spot.textContent = one?.title ?? "–";
  if (one?.row) showCloses(one.row);
  draw("latency", one ? pastLatency(one) : []);
  draw("stages", one ? STAGES.map((stage) => ({ label: words[stage], colour: colour(stage), values: one.values[`${stage}_mean_ms`] })) : []);
}

function pastLine({ labels, names, values }, index, series) {
  const key = `${labels.tenant} ${labels.model}`;
  const live = series.find((one) => one.key === key);
  const tenant = names.tenant ?? labels.tenant;
  const label = page.dataset.scope === "all" ? `${tenant} · ${labels.model}` : labels.model;
  const title = live ? `${live.tenant} · ${nameOf(live.row)}` : label;
  return { key, values, title, label: live?.label ?? label, row: live?.row, colour: live?.colour ?? classColour("standard", index) };
}

function pastLatency(one) {
  const base = colour(one.row?.sla_class ?? "standard");
  const lines = [
    { label: "p50", colour: colour("axis"), width: 1.25, values: one.values.total_p50_ms },
    { label: "p95", colour: base, width: 2.25, values: one.values.total_p95_ms },
    { label: "p99", colour: `color-mix(in oklab, ${base} 45%, #f76707)`, width: 1.25, values: one.values.total_p99_ms },
  ];
  const target = one.row?.target_ms;
  if (target) lines.push({ label: words.target, colour: colour("target"), width: 1.25, dash: [5, 5], isLimit: true, values: one.values.total_p95_ms.map(() => target) });
  return lines;
}

function showCloses(row) {
  const box = page.querySelector("[data-closes]");
  if (!box) return;
  const entries = Object.entries(row.closes ?? {}).sort((a, b) => b[1] - a[1]);
  if (!entries.length) return box.replaceChildren(Object.assign(document.createElement("span"), { className: "text-secondary", textContent: words.unknown }));
  box.replaceChildren(...entries.map(([reason, share]) => {
    const item = document.createElement("div");
    item.className = "tg-close";
    item.innerHTML = `<span class="fw-medium"></span><span class="tg-meter"><i style="width:${(share * 100).toFixed(1)}%"></i></span><span class="tg-num text-end"></span><small></small>`;
    item.children[0].textContent = words[`close_${reason}`] ?? reason;
    item.children[2].textContent = percent(share);
    item.children[3].textContent = words[`why_${reason}`] ?? "";
    return item;
  }));
}

const replicaColour = (index) => `color-mix(in oklab, ${colour("execute")} ${[100, 60, 35, 80][index % 4]}%, #868e96)`;

// With all tenants in view, the replicas' own word; for one tenant, its share of the devices' time.
function showDevices(time) {
  const ids = new Map();
  for (const frame of feed.frames) for (const replica of frame.replicas ?? []) if (!only || replica.model === only) ids.set(replica.replica_id, replica);
  if (ids.size) {
    const lines = [...ids].sort(([a], [b]) => (a < b ? -1 : 1)).map(([id, replica], index) => ({
      label: `${replica.model} ${id.slice(-4)}`,
      colour: replicaColour(index),
      values: time.times.map((at) => time.at.get(at)?.replicas?.find((one) => one.replica_id === id)?.busy ?? null),
    }));
    return charts.device?.show(time.times, lines);
  }
  const values = time.times.map((at) => {
    const frame = time.at.get(at);
    return frame?.covered ? shown(frame).reduce((sum, row) => sum + (row.device_ms_s ?? 0), 0) / 1000 : null;
  });
  return charts.device?.show(time.times, [{ label: words.device, colour: colour("execute"), values }]);
}

// A series that is not in the newest second (a gap, or forgotten): its name stays, its figures do not.
const absent = ({ tenant_id, model, version_id, sla_class, target_ms }) => ({ tenant_id, model, version_id, sla_class, target_ms, rps: null });

// A chart stays readable with few lines: the busiest now, in the order of the table.
function busiest(series) {
  if (series.length <= MAX_LINES) return series;
  const kept = new Set([...series].sort((a, b) => (b.row.rps ?? 0) - (a.row.rps ?? 0)).slice(0, MAX_LINES));
  return series.filter((one) => kept.has(one));
}

function show() {
  if (document.visibilityState === "hidden") return;
  const time = timeline();
  const series = seriesOf(feed.frames);
  if (!series.some((one) => one.key === selected)) selected = series[0]?.key ?? null;
  const last = feed.frames.at(-1);
  for (const one of series) one.row = last?.rows.find((row) => keyOf(row) === one.key) ?? absent(one.row);
  page.dataset.second = last?.at ?? "";
  showFigures(last);
  showTable(series, time);
  if (past.isLive) showCharts(series, time);
  else {
    // Once per answer: the socket's seconds change nothing in it but names, colours and targets.
    const shownFor = [selected, ...series.map((one) => one.key)].join();
    if (past.drawn === past.answer && past.drawnFor === shownFor) return;
    [past.drawn, past.drawnFor] = [past.answer, shownFor];
    showPast(series);
  }
}

function select(event) {
  const tr = event.target.closest("tr[data-key]");
  if (!tr || event.target.closest("a")) return;
  if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  selected = tr.dataset.key;
  updateSelection();
  show();
}

body.addEventListener("click", select);
body.addEventListener("keydown", select);
// Rows stand still while the pointer or the keyboard is on them, and the card says so.
function pause() {
  page.querySelector("[data-paused]").hidden = !(isHovered || body.contains(document.activeElement));
}
body.addEventListener("pointerenter", () => { isHovered = true; pause(); });
body.addEventListener("pointerleave", () => { isHovered = false; pause(); });
body.addEventListener("focusin", pause);
body.addEventListener("focusout", () => requestAnimationFrame(pause));
feed.addEventListener("frames", show);
past.addEventListener("change", () => { past.drawn = undefined; show(); });
for (const one of Object.values(charts)) if (one) one.onZoom = (since, until) => past.zoom(since, until);
bindRanges(past, page.querySelector("[data-ranges]"));
past.start();
document.addEventListener("tg:theme", () => { past.drawn = undefined; show(); });
bindBadge(feed, document.getElementById("live-badge"));
feed.start();
