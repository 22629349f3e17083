// The bell: how many alerts fire, and a note on each that fires or is over, on every page.

import { LiveFeed, bindBadge, feeds } from "./live.js";

const NOTED_MS = 12_000;
const MAX_NOTES = 4;
const bell = document.getElementById("bell");
const notes = document.getElementById("notes");
const ICONS = { critical: "alert-octagon", warning: "alert-triangle", info: "info-circle" };

function count(feed) {
  const firing = [...(feed.alerts?.values() ?? [])];
  const badge = bell.querySelector("[data-count]");
  badge.hidden = firing.length === 0;
  badge.textContent = firing.length > 99 ? "99+" : firing.length;
  badge.classList.toggle("bg-red", firing.some((alert) => alert.severity === "critical"));
  bell.setAttribute("aria-label", `${bell.dataset.word}: ${firing.length}`);
}

function icon(alert) {
  const mark = document.createElement("i");
  const isOver = alert.state === "resolved";
  mark.className = `ti ti-${isOver ? "circle-check tg-good" : `${ICONS[alert.severity] ?? "bell"} ${alert.severity === "critical" ? "tg-bad" : "tg-risk"}`}`;
  mark.setAttribute("aria-hidden", "true");
  return mark;
}

function note(alert) {
  const box = document.createElement("div");
  box.className = "tg-note-box";
  const text = document.createElement("a");
  text.href = bell.href;
  const about = [alert.tenant, alert.labels.model].filter(Boolean).join(" × ");
  const head = document.createElement("span");
  head.className = "fw-medium d-block";
  head.textContent = alert.name;
  const below = document.createElement("span");
  below.className = "small text-secondary d-block";
  below.textContent = `${notes.dataset[alert.state] ?? alert.state}${about ? ` · ${about}` : ""}`;
  text.append(head, below);
  const close = document.createElement("button");
  close.type = "button";
  close.className = "btn-close";
  close.setAttribute("aria-label", notes.dataset.close);
  close.addEventListener("click", () => box.remove());
  box.append(icon(alert), text, close);
  notes.append(box);
  while (notes.children.length > MAX_NOTES) notes.firstElementChild.remove();
  leave(box);
}

// It stays while it is pointed at or has the focus: nobody loses what they are about to press.
function leave(box) {
  setTimeout(() => (box.matches(":hover, :focus-within") ? leave(box) : box.remove()), NOTED_MS);
}

function begin() {
  const scope = bell?.dataset.scope;
  if (!scope) return;
  const own = feeds.find((feed) => feed.scope === scope);
  const feed = own ?? new LiveFeed(scope, { only: "alerts" });
  feed.addEventListener("alerts", () => { count(feed); document.dispatchEvent(new CustomEvent("tg:alert")); });
  feed.addEventListener("alert", ({ detail }) => note(detail));
  count(feed);
  if (own) return;
  if (!feeds.some((one) => one !== feed)) bindBadge(feed, document.getElementById("live-badge"));
  feed.start();
}

// After every script of the page: one that shows figures has opened its socket by then.
addEventListener("DOMContentLoaded", begin);
