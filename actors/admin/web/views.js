// All views by their addresses, in the order of the navigation.

import { showAlarms } from "./view_alarms.js";
import { showBridges } from "./view_bridges.js";
import { showClient } from "./view_client.js";
import { showClients } from "./view_clients.js";
import { showGenerations } from "./view_generations.js";
import { showOverview } from "./view_overview.js";
import { showRetained } from "./view_retained.js";
import { showSearch } from "./view_search.js";
import { showSessions } from "./view_sessions.js";
import { showShards } from "./view_shards.js";
import { showTopics } from "./view_topics.js";

export const VIEWS = [
  { path: "", title: "Overview", show: showOverview, listed: true },
  { path: "clients", title: "Clients", show: showClients, listed: true, apart: true },
  { path: "sessions", title: "Sessions", show: showSessions, listed: true },
  { path: "topics", title: "Topics", show: showTopics, listed: true, apart: true },
  { path: "generations", title: "Generations", show: showGenerations, listed: true },
  { path: "retained", title: "Retained", show: showRetained, listed: true },
  { path: "shards", title: "Shards", show: showShards, listed: true },
  { path: "bridges", title: "Bridges", show: showBridges, listed: true },
  { path: "alarms", title: "Alarms", show: showAlarms, listed: true, apart: true },
  { path: "client", title: "Client", show: showClient },
  { path: "search", title: "Search", show: showSearch },
];

export function viewOf(wanted) {
  return VIEWS.find(({ path }) => path === wanted) ?? VIEWS[0];
}
