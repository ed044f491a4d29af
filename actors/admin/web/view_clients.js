// Clients: who is connected, and who is away and has a session.

import { get, page, path, ROWS } from "./api.js";
import { el, name } from "./dom.js";
import { live, NOW_AND_THEN_MS } from "./live.js";
import { absent, chips, empty, head, panel, state, table, Trail } from "./parts.js";
import { ago, count } from "./words.js";

export const clientLink = (id) => el("a", { href: `#/client/${encodeURIComponent(id)}` }, name(id));
export const PROTOCOLS = { 3: "3.1", 4: "3.1.1", 5: "5.0" };
const STATES = [["All", ""], ["Connected", "connected"], ["Away", "disconnected"]];

export function showClients(place, { asked, signal }) {
  const wanted = { conn_state: asked.get("state") ?? "", like_clientid: asked.get("like") ?? "" };
  const trail = new Trail();
  place.append(
    head("Clients"),
    el(
      "div", { class: "bar-row" },
      chips("Which clients", STATES.map(([word, key]) => [word, address(key, wanted.like_clientid), key]), wanted.conn_state),
      likeForm(wanted.like_clientid, "Part of a client id", (like) => { location.hash = address(wanted.conn_state, like); }),
    ),
  );
  const again = live(
    place, signal, NOW_AND_THEN_MS,
    (stop) => page(path("clients"), { ...wanted, limit: ROWS, cursor: trail.cursor }, stop),
    (found) => [absent(found.meta.missing), panel(null, null, found.data.length ? clientTable(found.data) : empty("No client is like that."), trail.node(found.data.length, found.meta.cursor, "client", () => again()))],
  );
}

function address(state, like) {
  const given = new URLSearchParams(Object.entries({ state, like }).filter(([, value]) => value));
  return `#/clients${given.size ? `?${given}` : ""}`;
}

export function likeForm(value, label, then, word = "Find") {
  const input = el("input", { type: "search", value, placeholder: label, "aria-label": label, spellcheck: "false", autocomplete: "off" });
  return el("form", { role: "search", onsubmit: (event) => { event.preventDefault(); then(input.value); } }, input, el("button", {}, word));
}

export function clientTable(rows) {
  return table("Clients", [
    { head: "Client", wide: true, cell: ({ clientid }) => clientLink(clientid) },
    { head: "State", cell: (one) => clientState(one) },
    { head: "Session", spare: true, cell: ({ session }) => session },
    { head: "User", cell: ({ username }) => (username ? name(username) : "") },
    { head: "MQTT", spare: true, cell: ({ proto_ver: version }) => PROTOCOLS[version] ?? "" },
    { head: "From", cell: ({ ip_address: host, port }) => (host ? `${host}${port ? `:${port}` : ""}` : "") },
    { head: "Since", number: true, cell: (one) => ago(Date.parse(one.connected ? one.connected_at : one.disconnected_at)) },
    { head: "Home", number: true, spare: true, cell: ({ home }) => count(home) },
  ], rows);
}

export function clientState({ connected, congested }) {
  if (!connected) return state("off", "away");
  return congested ? state("warn", "congested") : state("good", "connected");
}

export const oneClient = (id, signal) => get(path("clients", id), {}, signal);
