// How the broker is: whether it is ready, how much there is of everything, and what has been going on since the page was opened.

import { get, path } from "./api.js";
import { chart } from "./chart.js";
import { el, put } from "./dom.js";
import { live, NOW_AND_THEN_MS, OFTEN_MS, trouble } from "./live.js";
import { absent, head, panel, state, table, tile } from "./parts.js";
import { poll } from "./poll.js";
import { at, brief, bytes, count, known, latency, plural } from "./words.js";

const LOOKS_MAX = 61;
const GAP_MS = 4 * OFTEN_MS;
const SOON_MS = 1_200;
const perSecond = (value) => (Number.isFinite(value) ? `${brief(value)}/s` : "–");
const bytesPerSecond = (value) => (Number.isFinite(value) ? `${bytes(value)}/s` : "–");
const milliseconds = (value) => (Number.isFinite(value) ? latency(value / 1000) : "–");

const of = (group, ...names) => (figures) => names.reduce((at, name) => at?.[name], figures[group]) ?? NaN;
const CHARTS = [
  ["Messages", {}, perSecond, [["published", of("rates", "published")], ["stored", of("rates", "stored")], ["delivered", of("rates", "delivered")]]],
  ["Payload", { thousand: 1024 }, bytesPerSecond, [["published", of("rates", "published_bytes")], ["stored", of("rates", "stored_bytes")]]],
  ["PUBLISH until its acknowledgement", {}, milliseconds, [["p50", of("latencies", "publish", "p50_ms")], ["p99", of("latencies", "publish", "p99_ms")]]],
  ["Commit to the disk", { about: "p99" }, milliseconds, [["record", of("latencies", "commit", "p99_ms")], ["sync", of("latencies", "sync", "p99_ms")]]],
  ["Age of a message when it is sent", {}, milliseconds, [["p50", of("latencies", "delivery", "p50_ms")], ["p99", of("latencies", "delivery", "p99_ms")]]],
  ["Connects, and what was not taken", {}, perSecond, [["connects", of("rates", "connects")], ["refused", of("rates", "refused")], ["dropped", of("rates", "dropped")]]],
];

// What was seen, for as long as the page is open: whoever looks at another view meanwhile comes back to it.
const times = [];
const seen = CHARTS.map(([, , , series]) => series.map(() => []));

function note(figures, nowMs) {
  if (times.length && nowMs - times[times.length - 1] > GAP_MS) add(times[times.length - 1] + 1, () => NaN);
  if (known(figures.over_s)) add(nowMs, (value) => value(figures));
}

function add(atMs, valued) {
  times.push(atMs);
  CHARTS.forEach(([, , , series], chartAt) => series.forEach(([, value], at) => seen[chartAt][at].push(valued(value))));
  if (times.length <= LOOKS_MAX) return;
  times.shift();
  seen.flat().forEach((values) => values.shift());
}

export function showOverview(place, { signal }) {
  const wrong = el("div");
  const strip = el("div");
  const tiles = el("dl", { class: "tiles" });
  const charts = CHARTS.map(([title, how, shown, series]) => chart(title, series.map(([label]) => ({ label })), shown, how));
  const processes = el("div");
  let status = null;
  let figures = null;
  const which = el("span", { class: "note" });
  place.append(head("Overview", {}, which), wrong, strip, tiles, el("div", { class: "grid" }, charts.map(({ node }) => node)), processes);
  drawTiles(tiles, null);
  charts.forEach(({ draw }, at) => draw(times, seen[at]));

  const again = poll(OFTEN_MS, signal, async (stop) => {
    try {
      figures = await get(path("figures"), {}, stop);
    } catch (error) {
      if (!stop.aborted) put(wrong, trouble(error));
      throw error;
    }
    if (stop.aborted) return;
    note(figures, Date.now());
    put(wrong, absent(figures.missing));
    drawTiles(tiles, figures.now);
    charts.forEach(({ draw }, at) => draw(times, seen[at]));
    drawProcesses(processes, figures, status);
    // A line has two ends.
    if (times.length < 2) setTimeout(again, SOON_MS);
  });
  live(strip, signal, NOW_AND_THEN_MS, async (stop) => {
    const [ready, said] = await Promise.all([get("/health/ready", {}, stop), get(path("status"), {}, stop)]);
    status = said;
    which.textContent = `version ${said.version} · site ${said.site} · since ${at(Date.parse(said.started_at))}`;
    return ready;
  }, drawStrip);
}

function drawStrip({ ready, alarms, because }) {
  const kind = !ready ? "bad" : alarms ? "warn" : "good";
  return el(
    "section", { class: `strip ${kind}`, "aria-label": "Health" },
    el("strong", {}, state(kind, ready ? "Ready" : "Not ready")),
    el("span", { class: "note" }, because.map((sentence) => el("span", {}, `${sentence[0].toUpperCase()}${sentence.slice(1)}. `)), alarms ? el("a", { href: "#/alarms" }, plural(alarms, "alarm")) : null),
  );
}

function drawTiles(tiles, now) {
  const [size, unit] = known(now?.disk_bytes) ? bytes(now.disk_bytes).split(" ") : ["–", ""];
  put(
    tiles,
    tile("Connections", brief(now?.connections, 7)),
    tile("Sessions away", brief(now?.sessions_away, 7)),
    tile("Durable subscriptions", brief(now?.subscriptions, 7)),
    tile("Retained messages", brief(now?.retained, 7)),
    tile("On disk", size, unit),
  );
}

function drawProcesses(place, figures, status) {
  const figured = new Map(figures.processes.map((one) => [one.name, one]));
  const listed = (status?.processes ?? []).filter(({ role }) => role !== "ray");
  const rows = (listed.length ? listed : figures.processes).map((one) => ({ ...one, ...figured.get(one.name) }));
  const ray = (status?.processes.length ?? 0) - listed.length;
  put(place, panel(
    "Processes", ray > 0 ? `and ${plural(ray, "process", "processes")} of Ray` : null,
    table("Processes", [
      { head: "Process", cell: ({ name }) => name },
      { head: "Pid", number: true, cell: ({ pid }) => pid },
      { head: "Cores used", number: true, cell: ({ cpu }) => (known(cpu) ? cpu.toFixed(2) : "") },
      { head: "Memory", number: true, cell: ({ resident_bytes: held }) => bytes(held) },
      { head: "Starts", number: true, cell: ({ starts }) => count(starts) },
    ], rows),
  ));
  place.firstElementChild.style.setProperty("margin-top", "var(--gap)");
}
