// Numbers, times and sizes as people read them.

const LOCALE = "en";
const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const MINUTES = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const day = new Intl.DateTimeFormat(LOCALE, MINUTES);
const date = new Intl.DateTimeFormat(LOCALE, { year: "numeric", ...MINUTES });
const SPANS = [["d", 86400e3], ["h", 3600e3], ["min", 60e3], ["s", 1e3]];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export function count(value) {
  return known(value) ? whole.format(value) : "";
}

// A number that may be large, in about five characters; up to a million in full where there is room for `digits`.
export function brief(value, digits = 5) {
  if (!known(value)) return "–";
  if (Math.abs(value) < 10 && !Number.isInteger(value)) return tenth.format(value);
  for (const [word, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size * (word === "k" ? 10 ** (digits - 4) : 1)) return `${value / size >= 100 ? whole.format(value / size) : tenth.format(value / size)}${word}`;
  }
  return whole.format(value);
}

export function bytes(value) {
  if (!known(value)) return "";
  let at = 0;
  while (Math.abs(value) >= 1024 && at < BYTES.length - 1) [value, at] = [value / 1024, at + 1];
  return `${at && value < 100 ? tenth.format(value) : whole.format(value)} ${BYTES[at]}`;
}

// Seconds of a latency.
export function latency(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 1e-3) return `${whole.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${seconds < 0.1 ? tenth.format(seconds * 1e3) : whole.format(seconds * 1e3)} ms`;
  return span(seconds * 1e3);
}

// A length of time in its two largest units.
export function span(ms) {
  if (!known(ms)) return "";
  if (ms < 10e3) return `${tenth.format(ms / 1e3)} s`;
  const at = SPANS.findIndex(([, size]) => ms >= size);
  const [word, size] = SPANS[at];
  const first = Math.floor(ms / size);
  const below = SPANS[at + 1];
  const second = below ? Math.floor((ms % size) / below[1]) : 0;
  return second && first < 10 ? `${first} ${word} ${second} ${below[0]}` : `${first} ${word}`;
}

// Without the year while it is the present one.
export function at(ms, now = Date.now()) {
  if (!known(ms)) return "";
  return (new Date(ms).getFullYear() === new Date(now).getFullYear() ? day : date).format(ms);
}

export function time(ms) {
  return clock.format(ms);
}

export function ago(ms, now = Date.now()) {
  return known(ms) ? `${span(Math.max(0, now - ms))} ago` : "";
}

export function ahead(ms, now = Date.now()) {
  return known(ms) ? (ms > now ? `in ${span(ms - now)}` : "now") : "";
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
