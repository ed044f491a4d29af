// Generations on a time line: when each was written to, how long it is kept, and who keeps it for longer.

import { get, path } from "./api.js";
import { el } from "./dom.js";
import { live, NOW_AND_THEN_MS } from "./live.js";
import { absent, empty, head, panel, state, table, Trail } from "./parts.js";
import { ahead, at, bytes, count, known, span } from "./words.js";

const PAST_SHARE = [0.35, 0.75];
const LINES = 200;

export function showGenerations(place, { signal }) {
  const trail = new Trail();
  place.append(head("Generations"), el("p", { class: "lead" }, "Messages are written to the current generation of their retention class. A sealed one is dropped as a whole when its time is over, whether its messages were read and acknowledged or not."));
  const again = live(
    place, signal, NOW_AND_THEN_MS, (stop) => get(path("generations"), { limit: LINES, cursor: trail.cursor }, stop),
    ({ data, meta }) => [
      absent(meta.missing),
      data.length ? panel("Time line", null, timeLine(data, Date.now()), legend()) : null,
      panel("All of them", null, data.length ? generationTable(data) : empty("There is none."), trail.node(data.length, meta.cursor, "generation", () => again())),
    ],
  );
}

// ------------------------------------------------------------------------------------------------ time line

// Past and future have scales of their own, which meet at now: a store of an hour and a retention of a week both are seen.
function scaleOf(rows, nowMs) {
  const first = Math.min(nowMs - 1000, ...rows.map(({ created_at: when }) => Date.parse(when)).filter(known));
  const last = Math.max(nowMs + 1000, ...rows.map((row) => endOf(row, nowMs)).filter(known));
  const [least, most] = PAST_SHARE;
  const past = Math.min(most, Math.max(least, (nowMs - first) / (last - first)));
  return {
    first, last, past,
    x: (ms) => 100 * (ms <= nowMs ? (past * (ms - first)) / (nowMs - first) : past + ((1 - past) * (ms - nowMs)) / (last - nowMs)),
  };
}

// When it goes, as far as that is known: of the current one, if it were sealed now.
function endOf({ current, drops_at: drops, period_ms: period, left_ms: left }, nowMs) {
  if (drops) return Date.parse(drops);
  if (current) return known(period) ? nowMs + period : NaN;
  return known(left) ? nowMs + Math.max(0, left) : NaN;
}

function timeLine(rows, nowMs) {
  const scale = scaleOf(rows, nowMs);
  const lanes = new Map();
  for (const row of rows) {
    const key = `${row.shard}/${row.retention_class}`;
    if (lanes.has(key)) lanes.get(key).push(row);
    else lanes.set(key, [row]);
  }
  const nowAt = `${scale.x(nowMs)}%`;
  return el(
    "div", { class: "lanes", role: "group", "aria-label": "Time line of generations; the table below has the same" },
    [...lanes.values()].map((of) => el(
      "div", { class: "lane" }, el("span", { class: "who" }, of[0].retention_class, " ", el("span", { class: "note" }, `shard ${of[0].shard}`)),
      el("div", { class: "track" }, kept(of, scale, nowMs), of.map((row) => bar(row, scale, nowMs)), el("span", { class: "now", style: { left: nowAt } })),
    )),
    el("div", { class: "lane axis", "aria-hidden": "true" }, el("span"), el(
      "div", { class: "track" },
      el("span", { class: "first" }, `${span(nowMs - scale.first)} ago`), el("span", { style: { left: nowAt } }, "now"), el("span", { class: "last", style: { left: "100%" } }, `in ${span(scale.last - nowMs)}`),
    )),
  );
}

// From now until the last of them goes.
function kept(rows, scale, nowMs) {
  const ends = rows.map((row) => endOf(row, nowMs)).filter((end) => end > nowMs);
  const left = scale.x(nowMs);
  return ends.length ? el("span", { class: "kept", style: { left: `${left}%`, width: `${scale.x(Math.max(...ends)) - left}%` } }) : null;
}

function bar(row, scale, nowMs) {
  const begin = scale.x(Date.parse(row.created_at));
  const until = row.current ? nowMs : Date.parse(row.sealed_at);
  const end = scale.x(until);
  const gone = scale.x(Math.max(nowMs, endOf(row, nowMs)));
  const kind = row.held_by ? "held" : row.current ? "current" : "sealed";
  const text = `generation ${row.generation}, ${kind}: ${count(row.messages)} messages from ${at(Date.parse(row.created_at))}${row.current ? "" : ` until ${at(until)}`}; goes: ${goes(row)}`;
  return [
    known(gone) && el("span", { class: "goes", title: text, style: { left: `${gone}%` } }),
    known(begin) && known(end) && el("span", { class: `span-of ${kind}`, role: "img", "aria-label": text, title: text, style: { left: `${begin}%`, width: `${Math.max(0, end - begin)}%` } }),
  ];
}

function goes({ current, held_by: held, drops_at: drops, period_ms: period, left_ms: left }) {
  if (held) return `held by ${held}`;
  if (current) return known(period) ? `${span(period)} once sealed` : "";
  if (known(left) && left <= 0) return "now";
  return drops ? ahead(Date.parse(drops)) : "";
}

function legend() {
  return el("p", { class: "legend" }, [["current", "written to"], ["sealed", "sealed"], ["held", "somebody holds it"], ["goes-then", "goes then"]].map(([kind, word]) => el("span", { class: kind }, el("i"), word)));
}

function generationTable(rows) {
  return table("Generations", [
    { head: "Generation", cell: ({ shard, generation }) => [count(generation), " ", el("span", { class: "note" }, `shard ${shard}`)] },
    { head: "Class", cell: (row) => row.retention_class },
    { head: "State", cell: (row) => (row.held_by ? state("warn", "held") : row.current ? state("good", "current") : state("off", "sealed")) },
    { head: "Layout", spare: true, cell: ({ layout }) => layout },
    { head: "Messages", number: true, cell: ({ messages }) => count(messages) },
    { head: "On disk", number: true, spare: true, cell: (row) => bytes(row.bytes) },
    { head: "Streams", number: true, spare: true, cell: ({ streams }) => count(streams) },
    { head: "From", number: true, cell: ({ created_at: when }) => at(Date.parse(when)) },
    { head: "Sealed", number: true, spare: true, cell: ({ sealed_at: when }) => at(Date.parse(when)) },
    { head: "Goes", cell: goes },
  ], rows);
}
