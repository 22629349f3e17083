// Charts of the last five minutes: shared cursor and range, gaps as gaps, targets as dashed lines.
// uPlot is loaded as a plain script before this module.

import { figure } from "./figures.js";

const WINDOW_S = 300;
const HEIGHT_PX = 176;
export const STAGES = ["gateway", "queue", "batch_wait", "execute", "post"];

const MARK_COLOURS = { deployment: "interactive", version: "batch", replica: "bad", promise: "standard", limit: "standard", alert: "risk" };

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--tg-${name}`).trim();

/** The n-th colour of an SLA class: its fixed hue, lighter or darker for further series. */
export function classColour(slaClass, index) {
  const base = colour(slaClass) || colour("standard");
  const share = [100, 62, 40, 80][index % 4];
  return index === 0 ? base : `color-mix(in oklab, ${base} ${share}%, ${index % 2 ? "#f59f00" : "#868e96"})`;
}

/** uPlot draws on a canvas, which wants plain colours. */
function plain(value) {
  const probe = document.createElement("span");
  probe.style.color = value;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Full minutes are labelled, midnights with their date; what lies between has its grid line only. */
function moment(tick) {
  if (tick % 60) return "";
  const zone = { timeZone: document.documentElement.dataset.zone || "UTC" };
  const time = new Date(tick * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...zone });
  return time === "00:00" ? new Date(tick * 1000).toLocaleDateString("sv", zone).slice(5) : time;
}

export class LiveChart {
  /**
   * `element` is the card's chart box. `options`: unit, stacked (areas on top of each other),
   * max (upper end of the axis, e.g. 1 for shares), format (value → text).
   */
  constructor(element, options = {}) {
    this.element = element;
    this.options = options;
    this.empty = element.querySelector(".tg-chart-empty");
    this.format = options.format ?? ((value) => figure(value, options.unit));
    new ResizeObserver(() => this.#resize()).observe(element);
    document.addEventListener("tg:theme", () => { this.signature = null; this.#draw(); });
  }

  /**
   * `lines`: [{label, colour, dash?, values: [number|null, …]}]; `times`: unix seconds, ascending.
   * `span`: [since, until] of a part of the past, in which dragging calls `onZoom(since, until)`.
   * `marks`: [{at, kind, action, target}] of what happened, drawn as thin lines; the cursor names them.
   */
  show(times, lines, span = null, marks = []) {
    this.marks = marks;
    this.times = times;
    this.lines = lines;
    this.span = span;
    this.#draw();
  }

  #draw() {
    if (!this.lines) return;
    const hasValues = this.lines.some((line) => line.values.some((value) => value !== null));
    if (this.empty) this.empty.hidden = hasValues;
    if (!hasValues && !this.plot) return;
    const signature = JSON.stringify([Boolean(this.span), this.lines.map((line) => [line.label, line.colour, line.dash])]);
    const data = this.options.stacked ? this.#stack() : [this.times, ...this.lines.map((line) => line.values)];
    if (this.plot && signature === this.signature) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.signature = signature;
    this.plot = new uPlot(this.#config(), data, this.element);
  }

  // Drawn from the tallest down, so that each area shows only its own share above the one below.
  #stack() {
    const sums = [];
    let below = this.times.map(() => 0);
    for (const line of this.lines) {
      below = line.values.map((value, i) => (value === null || below[i] === null ? null : below[i] + value));
      sums.push(below);
    }
    return [this.times, ...sums.reverse()];
  }

  // A line far above the others (a generous target) does not flatten them: it then lies outside the picture.
  #top() {
    if (this.options.stacked) return Math.max(0, ...this.times.map((_, i) => this.lines.reduce((sum, line) => sum + (line.values[i] ?? 0), 0)));
    const top = (lines) => Math.max(0, ...lines.flatMap((line) => line.values.filter((value) => value !== null)));
    const figures = top(this.lines.filter((line) => !line.isLimit));
    const limit = top(this.lines.filter((line) => line.isLimit));
    return limit > figures * 4 && figures > 0 ? figures : Math.max(figures, limit);
  }

  #config() {
    const stacked = this.options.stacked;
    const lines = stacked ? [...this.lines].reverse() : this.lines;
    const axis = { stroke: colour("axis"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
    return {
      width: this.element.clientWidth,
      height: this.#height(),
      padding: [10, 8, 0, 0],
      cursor: { sync: { key: "live" }, points: { size: 5 }, drag: { x: Boolean(this.span), y: false, setScale: false } },
      hooks: {
        setSelect: [(plot) => this.#zoom(plot)],
        draw: [(plot) => this.#drawMarks(plot)],
        setCursor: [(plot) => this.#nameMark(plot)],
      },
      legend: { live: true, markers: { width: 0, fill: (_, i) => plain(lines[i - 1].colour) } },
      scales: {
        x: { time: true, range: () => { if (this.span) return this.span; const end = this.times.at(-1) ?? Date.now() / 1000; return [end - WINDOW_S, end]; } },
        y: { range: () => [0, this.options.max ?? Math.max(this.#top() * 1.15, this.options.least ?? 1e-9)] },
      },
      axes: [
        { ...axis, size: 26, space: 40, values: (_, ticks) => ticks.map(moment) },
        { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => this.options.axis?.(tick) ?? (tick === 0 ? "0" : Number(tick.toPrecision(3)).toLocaleString("en-US"))) },
      ],
      series: [
        { label: "", value: () => "" },
        ...lines.map((line, shown) => ({
          label: line.label,
          stroke: plain(line.colour),
          width: stacked ? 0 : line.width ?? (line.dash ? 1.25 : 1.75),
          dash: line.dash,
          fill: stacked ? plain(line.colour) : undefined,
          spanGaps: false,
          points: this.span && !stacked && !line.isLimit ? { size: 4 } : { show: false },
          value: (plot, _, seriesIndex, index) => this.#legend(lines.length - 1 - shown, shown, index),
        })),
      ],
    };
  }

  // The legend shows the value under the cursor, else the newest.
  #legend(stackedAt, plainAt, index) {
    const line = this.lines[this.options.stacked ? stackedAt : plainAt];
    const values = line?.values ?? [];
    return this.format(index === null || index === undefined ? values.findLast((v) => v !== null) ?? null : values[index]);
  }

  #drawMarks(plot) {
    const { ctx: pen, bbox } = plot;
    pen.save();
    pen.lineWidth = devicePixelRatio;
    pen.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of this.marks) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      pen.strokeStyle = pen.fillStyle = plain(colour(MARK_COLOURS[mark.kind] ?? "axis"));
      pen.beginPath();
      pen.moveTo(x, bbox.top);
      pen.lineTo(x, bbox.top + bbox.height);
      pen.stroke();
      pen.fillRect(x - 3 * devicePixelRatio, bbox.top, 6 * devicePixelRatio, 4 * devicePixelRatio);
    }
    pen.restore();
  }

  // What happened where the cursor is: the nearest mark within a few pixels.
  #nameMark(plot) {
    const left = plot.cursor.left;
    const near = (mark) => Math.abs(plot.valToPos(mark.at, "x") - left);
    const found = left < 0 ? [] : this.marks.filter((mark) => near(mark) < 6).slice(0, 3);
    plot.over.title = found.map((mark) => `${mark.action} ${mark.target} (${mark.actor})`).join("\n");
  }

  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  // The canvas only: the legend below it takes what it needs.
  #height() {
    return HEIGHT_PX;
  }

  #resize() {
    if (this.plot) this.plot.setSize({ width: this.element.clientWidth, height: this.#height() });
  }
}

/** A line without axes, for table cells. */
export function sparkline(canvas, values, stroke) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const top = Math.max(...values.filter((v) => v !== null), 1e-9);
  const x = (i) => (i / Math.max(1, values.length - 1)) * (width - 2) + 1;
  const y = (v) => height - 2 - (v / top) * (height - 4);
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.strokeStyle = plain(stroke);
  pen.fillStyle = plain(`color-mix(in srgb, ${stroke} 14%, transparent)`);
  for (const run of runs(values)) {
    pen.beginPath();
    run.forEach(([i, v], n) => (n ? pen.lineTo(x(i), y(v)) : pen.moveTo(x(i), y(v))));
    pen.stroke();
    pen.lineTo(x(run.at(-1)[0]), height);
    pen.lineTo(x(run[0][0]), height);
    pen.fill();
  }
}

// Unbroken stretches of values: a gap stays a gap.
function runs(values) {
  const out = [];
  let run = [];
  values.forEach((value, i) => {
    if (value !== null) run.push([i, value]);
    else if (run.length) { out.push(run); run = []; }
  });
  if (run.length) out.push(run);
  return out;
}
