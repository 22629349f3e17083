// The live socket: reconnects by itself, notices gaps by sequence number and re-reads a snapshot, and says
// in the badge what the page's figures are worth: live, reconnecting, or stale since n seconds.

const HISTORY_S = 300;
const STALE_MS = 3500;
const SILENT_MS = 35_000; // the server pings every 15 s: this long a silence is a dead line
const RESYNC_PINGS = 4;
const BACK_OFF_MS = [250, 500, 1000, 2000, 4000, 8000];
const SIGNED_OUT = 4401;
const FORBIDDEN = 4403;

/** The feeds of this page, so that one socket serves all of it. */
export const feeds = [];

export class LiveFeed extends EventTarget {
  /**
   * `scope` is "all" or a tenant's id; `only: "alerts"` leaves the frames out. Events: "frames" after every change,
   * "state" for the badge, "alerts" when it is known anew what fires, "alert" (its `detail`) for each that moved.
   */
  constructor(scope, { only = "" } = {}) {
    super();
    feeds.push(this);
    this.scope = scope;
    this.only = only;
    this.frames = [];
    this.alerts = null; // fingerprint → what fires now; null until it is known
    this.attempts = 0;
    this.state = "reconnecting";
    this.frameAt = null;
    this.openedAt = 0;
  }

  start() {
    this.#connect();
    this.ticker = setInterval(() => this.#tick(), 500);
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible" && this.state !== "signed-out") this.#wake();
    });
    addEventListener("online", () => this.#wake());
  }

  get staleSeconds() {
    return Math.round((performance.now() - (this.frameAt ?? this.openedAt)) / 1000);
  }

  #connect() {
    clearTimeout(this.retry);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/live/?scope=${encodeURIComponent(this.scope)}${this.only && `&only=${this.only}`}`);
    this.socket = socket;
    this.heardAt = performance.now();
    socket.onopen = () => { this.openedAt = this.heardAt = performance.now(); };
    socket.onmessage = (event) => { if (socket === this.socket) this.#hear(JSON.parse(event.data)); };
    socket.onclose = (event) => { if (socket === this.socket) this.#lost(event.code); };
  }

  #hear(message) {
    this.heardAt = performance.now();
    if (message.type === "ping") this.#answer();
    else if (message.type === "snapshot") this.#take(message);
    else if (message.type === "alert") this.#move(message.alert);
    else if (message.type === "frame") this.#append(message);
  }

  #say(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  // Without frames no gap shows in their numbers: what fires is asked for anew now and then.
  #answer() {
    this.#say({ do: "pong" });
    this.pings = (this.pings ?? 0) + 1;
    if (this.only && this.pings % RESYNC_PINGS === 0) this.#say({ do: "snapshot" });
  }

  // What fired or ended while the line was down is told too, once it is back.
  #know(alerts) {
    const before = this.alerts;
    this.alerts = new Map(alerts.map((alert) => [alert.fingerprint, alert]));
    this.dispatchEvent(new Event("alerts"));
    if (!before) return;
    for (const alert of alerts) if (!before.has(alert.fingerprint)) this.#tell(alert);
    for (const [name, alert] of before) if (!this.alerts.has(name)) this.#tell({ ...alert, state: "resolved" });
  }

  #move(alert) {
    const known = this.alerts ?? new Map();
    const isNew = alert.state === "firing" ? known.get(alert.fingerprint)?.fired_at !== alert.fired_at : known.has(alert.fingerprint);
    if (alert.state === "firing") known.set(alert.fingerprint, alert);
    else known.delete(alert.fingerprint);
    this.alerts = known;
    this.dispatchEvent(new Event("alerts"));
    if (isNew) this.#tell(alert);
  }

  #tell(alert) {
    this.dispatchEvent(new CustomEvent("alert", { detail: alert }));
  }

  #take({ frames, alerts }) {
    this.attempts = 0;
    this.asking = false;
    if (alerts) this.#know(alerts);
    this.frames = frames;
    // An old history is no sign of life: only a fresh last second makes the page live at once.
    const age = frames.length ? Date.now() / 1000 - frames.at(-1).at : Infinity;
    if (age < 10) this.frameAt = performance.now();
    this.#trim();
    this.dispatchEvent(new Event("frames"));
    this.#tick();
  }

  #append(frame) {
    const last = this.frames.at(-1);
    const follows = !last || (frame.epoch === last.epoch ? frame.seq === last.seq + 1 : frame.at > last.at);
    if (last && frame.epoch === last.epoch && frame.seq <= last.seq) return;
    if (!follows && !this.asking) {
      this.asking = true;
      this.#say({ do: "snapshot" });
    }
    this.frames.push(frame);
    this.frameAt = performance.now();
    this.#trim();
    this.dispatchEvent(new Event("frames"));
    this.#tick();
  }

  #trim() {
    const oldest = (this.frames.at(-1)?.at ?? 0) - HISTORY_S;
    while (this.frames.length && this.frames[0].at < oldest) this.frames.shift();
  }

  #lost(code) {
    if (code === SIGNED_OUT || code === FORBIDDEN) return this.#enter("signed-out");
    this.#enter("reconnecting");
    const wait = BACK_OFF_MS[Math.min(this.attempts++, BACK_OFF_MS.length - 1)];
    this.retry = setTimeout(() => this.#connect(), wait * (0.5 + Math.random()));
  }

  #wake() {
    const isDead = this.socket.readyState > WebSocket.OPEN || performance.now() - this.heardAt > SILENT_MS;
    if (isDead) this.#reconnect();
    else this.dispatchEvent(new Event("frames"));
  }

  #reconnect() {
    const old = this.socket;
    this.attempts = 0;
    this.#enter("reconnecting");
    this.#connect();
    old.close();
  }

  #tick() {
    if (this.state === "signed-out") return;
    const now = performance.now();
    if (this.socket.readyState === WebSocket.OPEN) {
      if (now - this.heardAt > SILENT_MS) return this.#reconnect();
      if (this.only) return this.#enter("live");
      const seenAt = this.frameAt ?? this.openedAt;
      this.#enter(now - seenAt > STALE_MS ? "stale" : this.frameAt ? "live" : "reconnecting");
    }
  }

  #enter(state) {
    const isSame = state === this.state;
    this.state = state;
    if (!isSame || state === "stale") this.dispatchEvent(new Event("state"));
  }
}

/** Keep a badge element saying what the feed's figures are worth. Words come from its data attributes. */
export function bindBadge(feed, badge) {
  const text = badge.querySelector(".tg-live-text");
  const words = { live: "live", stale: "stale", reconnecting: "reconnecting", "signed-out": "signedOut" };
  const show = () => {
    const word = badge.dataset[words[feed.state]];
    badge.dataset.state = feed.state;
    text.textContent = feed.state === "stale" ? `${word} ${feed.staleSeconds} s` : word;
  };
  badge.hidden = false;
  feed.addEventListener("state", show);
  show();
}
