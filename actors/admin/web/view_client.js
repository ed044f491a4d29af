// One client: how it is connected, its session, what that is subscribed to, and where it stands in each shard.

import { change, find, path } from "./api.js";
import { openDialog } from "./dialog.js";
import { el, name, plain } from "./dom.js";
import { mayWrite } from "./key.js";
import { live, NOW_AND_THEN_MS, trouble } from "./live.js";
import { absent, empty, facts, head, panel, state, table, tile } from "./parts.js";
import { PROTOCOLS, clientState } from "./view_clients.js";
import { behind, loss } from "./view_sessions.js";
import { ahead, at, brief, count, known, plural, span } from "./words.js";

const NEVER_S = 4294967295;

export function showClient(place, { rest, signal }) {
  const id = rest.join("/");
  const acts = el("span");
  place.append(head(name(id), { crumb: ["#/clients", "Clients"] }, acts));
  const again = live(
    place, signal, NOW_AND_THEN_MS,
    async (stop) => {
      const [client, session, subscriptions] = await Promise.all([
        find(path("clients", id), {}, stop), find(path("sessions", id), {}, stop), find(path("clients", id, "subscriptions"), {}, stop),
      ]);
      return { client, session, subscriptions };
    },
    (found) => {
      acts.replaceChildren(...(found.client && mayWrite() ? actions(id, found, () => again()) : []));
      return drawn(found);
    },
  );
}

function drawn({ client, session, subscriptions }) {
  if (!client && !session) return panel(null, null, empty("Nobody knows this client: it is not connected and has no session."));
  const lag = session?.lag ?? null;
  return [
    absent([...new Set([...(client?.missing ?? []), ...(session?.missing ?? [])])]),
    session && el(
      "dl", { class: "tiles" },
      tile("Behind", lag ? `${lag.counted ? "" : "≥ "}${brief(lag.messages, 7)}` : "–", "", session.kind === "memory" ? "nothing of it is stored" : ""),
      tile("Unread", brief(lag?.unread, 7)), tile("Given, unfinished", brief(session.unfinished, 7)),
      tile("Loses in", lag?.messages ? (lag.held ? "held" : known(lag.loss_in_ms) ? span(lag.loss_in_ms) : "–") : "–"),
      tile("Losses", brief(session.losses)),
    ),
    el("div", { class: "grid" }, client && panel("Connection", null, el("div", { class: "body" }, connection(client))), session && panel("Session", null, el("div", { class: "body" }, ofSession(session)))),
    filters(subscriptions ?? []),
    lag?.subscriptions.length ? places(lag) : null,
  ];
}

function connection(client) {
  return facts([
    ["State", clientState(client)], ["User", client.username ? name(client.username) : "anonymous"], ["MQTT", PROTOCOLS[client.proto_ver]],
    ["From", client.ip_address && `${client.ip_address}${client.port ? `:${client.port}` : ""}`], ["Listener", client.listener], ["Gateway", client.gateway],
    ["Connected", at(Date.parse(client.connected_at))], ["Away since", client.connected ? "" : at(Date.parse(client.disconnected_at))],
    ["Keep-alive", client.keepalive ? `${client.keepalive} s` : ""], ["In flight", count(client.inflight_cnt)], ["Queued", count(client.mqueue_len)],
    ["Session expiry", client.session === "ephemeral" ? "with the connection" : client.expiry_interval === NEVER_S ? "never" : span(client.expiry_interval * 1000)],
  ]);
}

function ofSession(session) {
  return facts([
    ["Kind", session.kind === "memory" ? "in memory" : session.kind], ["Home", `shard ${session.home}`], ["Begun", at(Date.parse(session.created_at))],
    ["Expires", session.expires_at ? `${at(Date.parse(session.expires_at))}, ${ahead(Date.parse(session.expires_at))}` : session.expiry_s === null ? "never" : session.connected ? `${span(session.expiry_s * 1000)} after it leaves` : ""],
    ["Wait for PUBREL", count(session.incoming)], ["Will", session.will ? name(session.will) : ""], ["Loaded", session.loaded ? "yes" : "no"],
    ["Oldest unread", session.lag ? at(Date.parse(session.lag.oldest_at)) : ""],
  ]);
}

function filters(rows) {
  return panel("Subscriptions", rows.length ? plural(rows.length, "filter") : null, rows.length ? table("Subscriptions", [
    { head: "Filter", wide: true, cell: ({ topic }) => name(topic) },
    { head: "QoS", number: true, cell: ({ qos }) => qos },
    { head: "From", cell: ({ durable }) => (durable ? "the store" : "live") },
    { head: "Options", cell: ({ nl, rap }) => (nl || rap ? [nl && el("span", { class: "tag" }, "no local"), nl && rap && " ", rap && el("span", { class: "tag" }, "retain as published")] : "") },
    { head: "Identifier", number: true, cell: ({ identifier }) => (identifier ? count(identifier) : "") },
  ], rows) : empty("It has no subscriptions."));
}

function places(lag) {
  return panel("Where it stands", "filters with something unread, shard by shard", table("Places", [
    { head: "Filter", wide: true, cell: ({ filter }) => name(filter) },
    { head: "Shard", number: true, cell: ({ shard }) => shard },
    { head: "Unread", number: true, cell: (one) => behind({ counted: one.counted, messages: one.unread }) },
    { head: "Oldest from", number: true, cell: ({ oldest_at: when }) => at(Date.parse(when)) },
    { head: "Loses in", number: true, cell: (one) => loss({ messages: one.unread, held: lag.held, loss_in_ms: one.loss_in_ms }) },
    { head: "Generations gone", number: true, cell: ({ gone }) => (gone ? state("bad", count(gone)) : "") },
  ], lag.subscriptions));
}

// ------------------------------------------------------------------------------------------------ what changes something

function actions(id, { client, session }, then) {
  const kick = el("button", { type: "button", onclick: () => confirm(
    "Disconnect this client?", id, "It may come back at once. Its session stays, and its will is published.", "Disconnect",
    () => change("POST", path("clients", id, "kick")), then,
  ) }, "Disconnect");
  const end = el("button", { type: "button", class: "danger", onclick: () => confirm(
    "End this session?", id, lost(session), "End it", () => change("DELETE", path("clients", id)), then,
  ) }, "End the session");
  return [client.connected ? kick : null, " ", session ? end : null].filter(Boolean);
}

function lost(session) {
  const { lag, subscriptions } = session;
  const waiting = lag ? `${lag.counted ? "" : "at least "}${plural(lag.messages, "message")}` : "the messages";
  return `Its ${plural(subscriptions, "subscription")} and ${waiting} that wait for it are gone then; its client is disconnected.`;
}

function confirm(title, id, text, word, act, then) {
  const wrong = el("div");
  openDialog(title, [el("p", {}, el("bdi", { class: "name" }, plain(id))), el("p", {}, text), wrong], {
    word, kind: "danger",
    act: async () => {
      await act();
      then();
    },
    wrong: (error) => wrong.replaceChildren(trouble(error)),
  });
}
