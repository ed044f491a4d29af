// Durable sessions and those in memory: a page of all of them, each with how far it is behind, or those that are furthest behind.

import { get, page, path, ROWS } from "./api.js";
import { el, put } from "./dom.js";
import { live, NOW_AND_THEN_MS, SELDOM_MS, trouble } from "./live.js";
import { absent, chips, empty, head, panel, state, table, Trail } from "./parts.js";
import { poll } from "./poll.js";
import { clientLink, likeForm } from "./view_clients.js";
import { ahead, at, count, known, span } from "./words.js";

const TOP = 50;
const PRESSING_MS = 86_400_000;

export function showSessions(place, { asked, signal }) {
  const furthest = asked.get("by") === "lag";
  const like = asked.get("like") ?? "";
  const tabs = chips("Which sessions", [["All", "#/sessions", "all"], ["Furthest behind", "#/sessions?by=lag", "lag"]], furthest ? "lag" : "all");
  const find = furthest ? null : likeForm(like, "Part of a client id", (text) => { location.hash = `#/sessions${text ? `?${new URLSearchParams({ like: text })}` : ""}`; });
  place.append(head("Sessions"), el("div", { class: "bar-row" }, tabs, find));
  if (furthest) showFurthest(place, signal);
  else showAll(place, like, signal);
}

// Rows come first; how far each of them is behind has to be counted, and comes when it is.
function showAll(place, like, signal) {
  const trail = new Trail();
  let lags = new Map();
  const asks = (stop, lag) => page(path("sessions"), { like_clientid: like, limit: ROWS, cursor: trail.cursor, lag }, stop);
  const body = el("div");
  place.append(body);
  const rows = live(body, signal, NOW_AND_THEN_MS, async (stop) => {
    const found = await asks(stop, null);
    return { ...found, data: found.data.map((one) => ({ ...one, lag: lags.get(one.client) ?? null, counting: one.kind === "durable" && !lags.has(one.client) })) };
  }, ({ data, meta }) => [
    absent(meta.missing),
    panel(null, null, data.length ? sessionTable(data) : empty("No session is like that."), trail.node(data.length, meta.cursor, "session", () => { lags = new Map(); rows(); counted(); })),
  ]);
  const wrong = el("div");
  place.append(wrong);
  const counted = poll(SELDOM_MS / 2, signal, async (stop) => {
    try {
      const found = await asks(stop, "true");
      lags = new Map(found.data.map((one) => [one.client, one.lag]));
      put(wrong);
    } catch (error) {
      if (!stop.aborted) put(wrong, trouble(error));
      throw error;
    }
    rows();
  });
}

function showFurthest(place, signal) {
  live(
    place, signal, SELDOM_MS / 2, (stop) => get(path("lag"), { top: TOP }, stop),
    ({ data, meta }) => [absent(meta.missing), panel("Furthest behind", `counted ${at(Date.parse(meta.as_of))}`, data.length ? sessionTable(data.map((lag) => ({ client: lag.client, connected: lag.connected, lag }))) : empty("No durable session is behind."))],
  );
}

function sessionTable(rows) {
  const whole = rows.some(({ kind }) => kind);
  return table("Sessions", [
    { head: "Client", wide: true, cell: ({ client }) => clientLink(client) },
    { head: "State", cell: ({ connected, kind }) => [connected ? state("good", "connected") : state("off", "away"), kind === "memory" && " ", kind === "memory" && el("span", { class: "tag" }, "in memory")] },
    { head: "Behind", number: true, cell: ({ lag, counting }) => (counting ? el("span", { class: "note" }, "…") : behind(lag)) },
    { head: "Loses in", number: true, cell: ({ lag }) => loss(lag) },
    ...(whole ? [
      { head: "Unfinished", number: true, spare: true, cell: ({ unfinished }) => count(unfinished) },
      { head: "Filters", number: true, cell: ({ subscriptions }) => count(subscriptions) },
      { head: "Losses", number: true, cell: ({ losses }) => (losses ? state("bad", count(losses)) : "") },
      { head: "Expires", number: true, cell: ({ expires_at: when, expiry_s: seconds, connected }) => (when ? ahead(Date.parse(when)) : connected || known(seconds) ? "" : "never") },
      { head: "Home", number: true, spare: true, cell: ({ home }) => count(home) },
    ] : [
      { head: "Unread", number: true, spare: true, cell: ({ lag }) => count(lag.unread) },
      { head: "Unfinished", number: true, spare: true, cell: ({ lag }) => count(lag.unfinished) },
      { head: "Oldest from", number: true, cell: ({ lag }) => at(Date.parse(lag.oldest_at)) },
    ]),
  ], rows);
}

// Messages, at least so many where nobody has counted to the end.
export function behind(lag) {
  return lag === null || lag === undefined ? "" : `${lag.counted ? "" : "≥ "}${count(lag.messages)}`;
}

export function loss(lag) {
  if (!lag || !lag.messages) return "";
  if (lag.held) return el("span", { class: "tag accent" }, "held");
  if (!known(lag.loss_in_ms)) return "";
  return lag.loss_in_ms < PRESSING_MS ? state(lag.loss_in_ms < PRESSING_MS / 24 ? "bad" : "warn", span(lag.loss_in_ms)) : span(lag.loss_in_ms);
}
