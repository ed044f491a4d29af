// Small line charts of what has been seen since the page was opened: up to three series over one time.

import { el, put, svg } from "./dom.js";
import { span, time } from "./words.js";

const WIDTH = 600;
const HEIGHT = 100;
const SPAN_MS = 300_000;

// series: [{label}]; shown: how a value is written, in steps of a `thousand`.  Returns {node, draw(times, rows)}: rows[i] are the values of series[i].
export function chart(title, series, shown, { about = "", thousand = 1000 } = {}) {
  const keys = el("p", { class: "keys" });
  const plot = el("div", { class: "plot" });
  const from = el("span");
  const to = el("span");
  const node = el(
    "figure", { class: "panel chart", role: "group", "aria-label": title },
    el("figcaption", { class: "title" }, el("h2", {}, title), el("span", { class: "note" }, about)),
    keys, plot, el("div", { class: "span" }, from, to),
  );
  let drawn = { times: [], rows: series.map(() => []) };
  let pointed = null;

  function legend(index) {
    put(keys, ...series.map(({ label }, at) => el("span", {}, el("i"), `${label} `, el("b", {}, shown(drawn.rows[at][index])))));
  }

  function draw(times, rows) {
    drawn = { times, rows };
    if (times.length < 2) {
      legend(times.length - 1);
      put(plot, el("span", { class: "waiting" }, "the second figure is on its way"));
      return;
    }
    const last = times[times.length - 1];
    const first = Math.min(times[0], last - SPAN_MS / 5);
    const highest = Math.max(...rows.flat().filter(Number.isFinite), 0);
    const top = rounded(highest, thousand);
    const x = (at) => ((at - first) / (last - first)) * WIDTH;
    const y = (value) => HEIGHT - (value / top) * (HEIGHT - 8);
    const lines = rows.map((values) => path(times, values, x, y));
    const picture = svg(
      "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": spoken(times.length - 1) },
      svg("path", { class: "level", d: `M0 ${y(top)}H${WIDTH}M0 ${y(top / 2)}H${WIDTH}` }),
      lines[0] && svg("path", { class: "area", d: area(times, rows[0], x, y) }),
      ...lines.map((line, at) => line && svg("path", { class: `s${at}`, d: line })).reverse(),
    );
    put(plot, picture, el("span", { class: "top" }, shown(top)));
    from.textContent = `${span(last - first)} ago`;
    to.textContent = time(last);
    point();
  }

  function spoken(index) {
    return `${title}: ${series.map(({ label }, at) => `${label} ${shown(drawn.rows[at][index])}`).join(", ")}`;
  }

  // What stood where the pointer is; the newest otherwise.
  function point() {
    plot.querySelector(".hair")?.remove();
    const { times } = drawn;
    if (pointed === null || times.length < 2) {
      legend(times.length - 1);
      return;
    }
    const last = times[times.length - 1];
    const first = Math.min(times[0], last - SPAN_MS / 5);
    const wanted = first + pointed * (last - first);
    let index = 0;
    for (let at = 1; at < times.length; at += 1) if (Math.abs(times[at] - wanted) < Math.abs(times[index] - wanted)) index = at;
    plot.append(el("span", { class: "hair", style: { left: `${((times[index] - first) / (last - first)) * 100}%` } }));
    to.textContent = time(times[index]);
    legend(index);
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    pointed = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    point();
  });
  plot.addEventListener("pointerleave", () => {
    pointed = null;
    if (drawn.times.length) to.textContent = time(drawn.times[drawn.times.length - 1]);
    point();
  });
  draw([], series.map(() => []));
  return { node, draw };
}

function path(times, values, x, y) {
  let line = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (!Number.isFinite(value)) {
      pen = "M";
      return;
    }
    line += `${pen}${x(times[at]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return line;
}

function area(times, values, x, y) {
  const there = values.map((value, at) => [times[at], value]).filter(([, value]) => Number.isFinite(value));
  if (there.length < 2) return "";
  const points = there.map(([at, value]) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
  return `M${x(there[0][0]).toFixed(1)} ${HEIGHT}L${points}L${x(there[there.length - 1][0]).toFixed(1)} ${HEIGHT}Z`;
}

// The next of 1, 2, 5 times a power of ten, in units of 1, a thousand, a million: bytes have another thousand.
function rounded(value, thousand) {
  if (!(value > 0)) return 1;
  const unit = value < thousand ? 1 : thousand ** Math.floor(Math.log(value) / Math.log(thousand));
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 5, 10].find((step) => step * power * unit >= value) * power * unit;
}
