// What somebody has to look at: alarms of what runs, and what else is wrong with the installation.

import { get, path } from "./api.js";
import { el } from "./dom.js";
import { live, NOW_AND_THEN_MS, SELDOM_MS } from "./live.js";
import { absent, empty, head, panel, state, table } from "./parts.js";

export function showAlarms(place, { signal }) {
  const findings = el("div", { style: { "margin-top": "var(--gap)" } });
  const alarms = el("div");
  place.append(head("Alarms"), alarms, findings);
  live(alarms, signal, NOW_AND_THEN_MS, (stop) => get(path("alarms"), {}, stop), ({ data, meta }) => [absent(meta.missing), panel(
    "Alarms", "of what runs, until it is over",
    data.length ? table("Alarms", [
      { head: "Process", cell: ({ name }) => name },
      { head: "Kind", cell: ({ kind }) => el("span", { class: "tag warn" }, kind) },
      { head: "What it is", most: true, cell: ({ cause }) => cause },
    ], data) : empty("There is none."),
  )]);
  live(findings, signal, SELDOM_MS, (stop) => get(path("findings"), {}, stop), ({ data, meta }) => [absent(meta.missing), panel(
    "The installation", ["as ", el("code", {}, "holdfast doctor"), " sees it"],
    data.length ? table("Findings", [
      { head: "About", cell: ({ about }) => about },
      { head: "How bad", cell: ({ serious }) => (serious ? state("bad", "serious") : state("warn", "worth a look")) },
      { head: "What it is", most: true, cell: ({ sentence }) => sentence },
    ], data) : empty("Nothing is wrong."),
  )]);
}
