// One question to all lists: clients of this id or with this in it, topics and retained messages by a filter, who gets a topic.

import { find, page, path } from "./api.js";
import { el, name } from "./dom.js";
import { trouble } from "./live.js";
import { absent, empty, head, panel, table } from "./parts.js";
import { topicTable } from "./view_topics.js";
import { clientLink, clientTable } from "./view_clients.js";
import { retainedTable } from "./view_retained.js";

const ROWS = 20;

export function showSearch(place, { asked, signal }) {
  const wanted = asked.get("q") ?? "";
  document.getElementById("find").value = wanted;
  place.append(head("Search", {}, el("span", { class: "note" }, name(wanted))));
  if (!wanted) {
    place.append(panel(null, null, empty("Write what you look for into the field of the navigation: / leads there.")));
    return;
  }
  part(place, signal, "Clients", (stop) => clients(wanted, stop), (rows) => withOthers(rows, wanted), "No client has this in its id.");
  part(place, signal, "Topics that were learned and match", (stop) => page(path("topics"), { filter: wanted, limit: ROWS }, stop), topicTable, "Nothing stored matches this filter.");
  part(place, signal, "Retained messages that match", (stop) => page(path("retained"), { filter: wanted, limit: ROWS }, stop), retainedTable, "No retained message matches this filter.");
  if (!/[+#]/.test(wanted)) takers(place, signal, wanted);
}

// All subscriptions have to be gone over for this, so it is done when somebody asks.
function takers(place, signal, topic) {
  const button = el("button", { type: "button", onclick: () => {
    section.remove();
    part(place, signal, "Who gets this topic", (stop) => page(path("subscriptions"), { match_topic: topic, limit: ROWS }, stop), (rows) => table("Subscriptions", [
      { head: "Client", wide: true, cell: ({ clientid }) => clientLink(clientid) },
      { head: "Filter", cell: ({ topic: filter }) => name(filter) },
      { head: "QoS", number: true, cell: ({ qos }) => qos },
    ], rows), "Nobody was found who is subscribed to it.");
  } }, "Go over the subscriptions");
  const section = panel("Who gets this topic", null, el("div", { class: "body" }, button));
  place.append(section);
}

function withOthers(rows, wanted) {
  const others = el("p", { class: "pager" }, el("a", { href: `#/clients?${new URLSearchParams({ like: wanted })}` }, "All with this in their id"));
  return el("div", {}, clientTable(rows), others);
}

// The one of this very id; when nobody has it, those with this in their ids, for which all clients are gone over.
async function clients(wanted, signal) {
  const exact = wanted === "." || wanted === ".." ? null : await find(path("clients", wanted), {}, signal);
  if (exact) return { data: [exact], meta: { missing: exact.missing, hasnext: false } };
  return page(path("clients"), { like_clientid: wanted, limit: ROWS }, signal);
}

async function part(place, signal, title, load, draw, nothing) {
  const body = el("div", { "aria-busy": "true" }, el("p", { class: "empty" }, "…"));
  const section = panel(title, null, body);
  place.append(section);
  let found;
  try {
    found = await load(signal);
  } catch (error) {
    if (!signal.aborted) body.replaceChildren(error.status === 400 ? empty(error.message) : trouble(error));
    return;
  }
  if (signal.aborted) return;
  const missing = absent(found.meta.missing);
  body.replaceChildren(...[missing, found.data.length ? draw(found.data) : empty(nothing)].filter(Boolean));
  if (found.meta.hasnext && found.data.length) section.append(el("p", { class: "pager" }, el("span", { class: "note" }, `the first ${found.data.length}`)));
  body.removeAttribute("aria-busy");
}
