// Retained messages, as their homes have them.

import { page, path, ROWS } from "./api.js";
import { el, name } from "./dom.js";
import { live, NOW_AND_THEN_MS } from "./live.js";
import { absent, empty, head, panel, table, Trail } from "./parts.js";
import { clientLink, likeForm } from "./view_clients.js";
import { ahead, at, bytes } from "./words.js";

export function showRetained(place, { asked, signal }) {
  const filter = asked.get("filter") ?? "";
  const trail = new Trail();
  place.append(
    head("Retained messages"),
    el("div", { class: "bar-row" }, likeForm(filter, "Topic filter, such as plant/+/temp", (text) => { location.hash = `#/retained${text ? `?${new URLSearchParams({ filter: text })}` : ""}`; })),
  );
  const again = live(
    place, signal, NOW_AND_THEN_MS, (stop) => page(path("retained"), { filter, limit: ROWS, cursor: trail.cursor }, stop),
    ({ data, meta }) => [absent(meta.missing), panel(null, null, data.length ? retainedTable(data) : empty("No retained message is like that."), trail.node(data.length, meta.cursor, "message", () => again()))],
  );
}

export function retainedTable(rows) {
  return table("Retained messages", [
    { head: "Topic", wide: true, cell: ({ topic }) => name(topic) },
    { head: "Publisher", cell: ({ publisher }) => (publisher ? clientLink(publisher) : "") },
    { head: "QoS", spare: true, number: true, cell: ({ qos }) => qos },
    { head: "Size", number: true, cell: (one) => bytes(one.bytes) },
    { head: "Published", number: true, cell: ({ published_at: when }) => at(Date.parse(when)) },
    { head: "Expires", number: true, cell: ({ expires_at: when }) => (when ? ahead(Date.parse(when)) : "") },
    { head: "Home", number: true, spare: true, cell: ({ home }) => home },
  ], rows);
}
