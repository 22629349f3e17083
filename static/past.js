// Charts over longer spans: which span is looked at, and what the stored metrics say of it. "live" is the
// socket's five minutes; every other span is read anew as often as its points are long.

const SPANS_S = { "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800 };
const METRICS = [
  "answered_s", "total_p50_ms", "total_p95_ms", "total_p99_ms", "batch_rows_mean", "pending", "device_ms_s",
  "gateway_mean_ms", "queue_mean_ms", "batch_wait_mean_ms", "execute_mean_ms", "post_mean_ms",
];
const REMEMBERED = "tg-range";
const MIN_REFRESH_MS = 10_000;
const MIN_ZOOM_S = 60;

export class Past extends EventTarget {
  /** `scope` is "all" or a tenant's id; `model` narrows to one. Events: "change" of the span or its data. */
  constructor(scope, model) {
    super();
    this.scope = scope;
    this.model = model;
    this.answer = null;
    this.marks = [];
    this.hasFailed = false;
    const asked = new URLSearchParams(location.search);
    const since = Number(asked.get("since")), until = Number(asked.get("until"));
    if (since > 0 && until > since) this.zoomed = [since, until];
    this.range = asked.get("range") ?? sessionStorage.getItem(REMEMBERED) ?? "live";
    if (!(this.range in SPANS_S)) this.range = "live";
  }

  get isLive() {
    return !this.zoomed && this.range === "live";
  }

  /** [since, until] in unix seconds. */
  get span() {
    const now = Date.now() / 1000;
    return this.zoomed ?? [now - SPANS_S[this.range], now];
  }

  choose(range) {
    this.range = range;
    this.zoomed = null;
    this.#enter();
  }

  zoom(since, until) {
    const middle = (since + until) / 2, half = Math.max(MIN_ZOOM_S, until - since) / 2;
    this.zoomed = [Math.round(middle - half), Math.round(middle + half)];
    this.#enter();
  }

  start() {
    if (!this.isLive) this.#read();
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && !this.isLive) this.#read();
    });
  }

  // The address says what is looked at, so that it can be sent to somebody; other pages begin with the same.
  #enter() {
    sessionStorage.setItem(REMEMBERED, this.range);
    const address = new URL(location.href);
    for (const name of ["range", "since", "until"]) address.searchParams.delete(name);
    if (this.zoomed) {
      address.searchParams.set("since", this.zoomed[0]);
      address.searchParams.set("until", this.zoomed[1]);
    } else if (!this.isLive) address.searchParams.set("range", this.range);
    history.replaceState(null, "", address);
    this.answer = null;
    this.marks = [];
    this.dispatchEvent(new Event("change"));
    if (!this.isLive) this.#read();
  }

  #query(more) {
    const [since, until] = this.span.map((second) => new Date(second * 1000).toISOString());
    const query = new URLSearchParams({ since, until, ...more });
    if (this.scope !== "all") query.set("tenant", this.scope);
    if (this.model) query.set("model", this.model);
    return query;
  }

  // Without marks, or the replicas' own word, a chart is still a chart.
  async #ask(what, query) {
    try {
      const response = await fetch(`/api/v1/metrics/${what}?${query}`, { headers: { accept: "application/json" } });
      return response.ok ? await response.json() : null;
    } catch { return null; }
  }

  async #besides() {
    const happened = this.#query({}), replicas = this.#query({ metric: "replica_busy_share" });
    happened.delete("model");
    return Promise.all([this.#ask("marks", happened), this.scope === "all" ? this.#ask("replicas", replicas) : null]);
  }

  async #read() {
    clearTimeout(this.timer);
    const reading = (this.reading = Symbol("reading"));
    const answer = await this.#ask("query", this.#query({ metric: METRICS.join(","), by: "tenant,model" }));
    const [happened, replicas] = answer ? await this.#besides() : [];
    if (reading !== this.reading || this.isLive) return;
    this.hasFailed = answer === null;
    if (answer) {
      this.answer = answer;
      this.marks = happened?.data ?? [];
      this.replicas = replicas;
    }
    this.dispatchEvent(new Event("change"));
    if (this.zoomed || document.visibilityState === "hidden") return;
    this.timer = setTimeout(() => this.#read(), Math.max(MIN_REFRESH_MS, (answer?.step_s ?? 0) * 500));
  }
}

/** The picker and the note beside it follow `past`. */
export function bindRanges(past, element) {
  const buttons = [...element.querySelectorAll("[data-range]")];
  const note = element.querySelector("[data-note]");
  const show = () => {
    for (const button of buttons) {
      const isChosen = !past.zoomed && button.dataset.range === past.range;
      button.classList.toggle("active", isChosen);
      button.setAttribute("aria-pressed", isChosen);
    }
    const state = past.isLive ? "live" : past.hasFailed ? "failed" : past.zoomed ? "zoomed" : past.answer ? "past" : "reading";
    note.textContent = element.dataset[state] ?? "";
  };
  for (const button of buttons) button.addEventListener("click", () => past.choose(button.dataset.range));
  past.addEventListener("change", show);
  show();
}
