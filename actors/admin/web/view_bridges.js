// Bridges: how each is, and how far it is behind.

import { get, path } from "./api.js";
import { el, name } from "./dom.js";
import { live, NOW_AND_THEN_MS } from "./live.js";
import { absent, empty, head, panel, state, table } from "./parts.js";
import { bytes, count, span } from "./words.js";

const STATES = { running: "good", failing: "bad", starting: "warn", paused: "warn", left: "bad" };

export function showBridges(place, { signal }) {
  place.append(head("Bridges"));
  live(
    place, signal, NOW_AND_THEN_MS,
    async (stop) => {
      const { data } = await get(path("bridges"), {}, stop);
      const found = [];
      // One after the other: what each is behind by is read from the files.
      for (const one of data) found.push(await get(path("bridges", one.name), {}, stop));
      return found;
    },
    (bridges) => [
      absent([...new Set(bridges.flatMap(({ missing }) => missing))]),
      panel(null, null, bridges.length ? bridgesTable(bridges) : empty("There are no bridges.")),
    ],
  );
}

// What one inwards is behind by only the other broker knows.
function behind({ direction, lag }) {
  if (direction === "in") return "not known";
  return lag ? `${lag.counted ? "" : "≥ "}${count(lag.messages)}` : "";
}

function bridgesTable(rows) {
  return table("Bridges", [
    { head: "Bridge", cell: (one) => name(one.name) },
    { head: "State", cell: (one) => state(STATES[one.state], one.state) },
    { head: "Direction", spare: true, cell: ({ direction }) => direction },
    { head: "Type", spare: true, cell: ({ type }) => type },
    { head: "Filter", wide: true, cell: ({ filter }) => (filter ? name(filter) : "") },
    { head: "Delivered", number: true, spare: true, cell: ({ delivered }) => (delivered === null ? "" : count(delivered)) },
    { head: "Behind", number: true, cell: behind },
    { head: "Bytes", number: true, spare: true, cell: ({ lag }) => (lag ? bytes(lag.unread_bytes) : "") },
    { head: "Oldest", number: true, cell: ({ lag }) => (lag ? span(lag.behind_ms) : "") },
    { head: "Loses in", number: true, cell: ({ lag }) => (lag?.held ? "held" : span(lag?.loss_in_ms)) },
    { head: "In flight", number: true, spare: true, cell: ({ inflight }) => count(inflight) },
    { head: "Error", wide: true, cell: ({ error }) => (error ? el("span", {}, name(error)) : "") },
  ], rows);
}
