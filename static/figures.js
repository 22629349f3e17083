// Numbers as the pages write them: three significant digits, a unit, "–" for none.

export const NONE = "–";
const NARROW = "\u202f";

export function threeDigits(value) {
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  const rounded = Number(value.toPrecision(3));
  return rounded.toLocaleString("en-US", {
    minimumFractionDigits: Math.min(12, Math.max(0, 2 - magnitude)),
    maximumFractionDigits: Math.min(12, Math.max(0, 2 - magnitude)),
  });
}

export function figure(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  return unit ? `${threeDigits(value)}${NARROW}${unit}` : threeDigits(value);
}

/** A share of 0–1 in percent; a broken promise is never rounded up to 100 %. */
export function percent(share) {
  if (share === null || share === undefined) return NONE;
  let text = (share * 100).toFixed(1);
  if (text === "100.0") text = share >= 1 ? "100" : "99.9";
  return `${text}${NARROW}%`;
}

export function money(micro) {
  if (micro === null || micro === undefined) return NONE;
  const value = micro / 1e6;
  return Math.abs(value) >= 1 || value === 0 ? value.toFixed(2) : threeDigits(value);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return figure(bytes, units[unit]);
}
