// The learned topic structure as a tree, with what lies under each level; and what reading a filter costs.

import { get, path } from "./api.js";
import { el, name, plain, put } from "./dom.js";
import { trouble } from "./live.js";
import { absent, empty, head, panel, share, table, tile } from "./parts.js";
import { openSome, tree } from "./tree.js";
import { likeForm } from "./view_clients.js";
import { at, brief, bytes, count, plural } from "./words.js";

const DEPTH = 3;
const NODES = 500;
const NODES_MAX = 5000;
const LINES = 24;

export function showTopics(place, { asked, signal }) {
  const filter = asked.get("cost") ?? "";
  const cost = el("div");
  const found = el("div");
  const when = el("span", { class: "note" });
  place.append(
    head("Topics", {}, when, el("button", { type: "button", onclick: () => look(found, when, signal) }, "Look again")),
    el("p", { class: "lead" }, "What the shards have learned of the topics of stored messages. A level with so many different words that it is kept as a value is shown as ", el("span", { class: "tag accent" }, "+"), "."),
    el("div", { class: "bar-row" }, likeForm(filter, "What does reading a filter cost? plant/+/temp", (text) => { location.hash = `#/topics${text ? `?${new URLSearchParams({ cost: text })}` : ""}`; }, "Explain")),
    cost, found,
  );
  if (filter) explain(cost, filter, signal);
  look(found, when, signal);
}

// ------------------------------------------------------------------------------------------------ the tree

async function look(place, when, signal) {
  place.setAttribute("aria-busy", "true");
  if (!place.firstChild) place.append(el("p", { class: "empty" }, "…"));
  try {
    const { root, meta } = await get(path("topics", "tree"), { depth: DEPTH, limit: NODES }, signal);
    if (signal.aborted) return;
    const whole = Math.max(1, root.messages);
    const more = async ({ key }, all) => {
      const [depth, limit] = all ? [1, NODES_MAX] : [2, NODES];
      // A first level that is empty has no path of its own.
      const top = (await get(path("topics", "tree"), { under: key, depth: key ? depth : depth + 1, limit }, signal)).root;
      return shown(key ? top : top.children.find(({ level }) => level === ""), whole);
    };
    const drawn = shown(root, whole);
    const list = tree("Learned topic structure", drawn.children ?? [], more);
    put(place, absent(meta.missing), panel(
      plural(root.messages, "message"), `${bytes(root.bytes)} in ${plural(root.streams, "stream")}${root.estimated ? ", in part estimated" : ""}`,
      root.below ? list : empty("Nothing is stored yet."),
      drawn.left > 0 ? el("p", { class: "pager" }, el("span", { class: "note" }, `${plural(drawn.left, "smaller branch", "smaller branches")} not shown; search for a filter finds them`)) : null,
    ));
    openSome(list, LINES);
    when.textContent = `as of ${at(Date.parse(meta.as_of))}`;
  } catch (error) {
    if (!signal.aborted) put(place, trouble(error));
  } finally {
    place.removeAttribute("aria-busy");
  }
}

// A node of the answer as the tree takes it.
function shown(node, whole) {
  const children = node.children.map((child) => shown(child, whole));
  return {
    key: node.path, below: node.below, left: children.length ? node.below - children.length : 0,
    children: children.length || !node.below ? children : null, label: line(node, whole),
  };
}

function line({ level, messages, bytes: size, estimated, streams }, whole) {
  const varying = level === "+";
  return [
    varying
      ? el("span", { class: "level varying name", title: "this level varies" }, "+", el("span", { class: "unseen" }, " varying level"))
      : el("bdi", { class: `level name${level === "" ? " blank" : ""}` }, level === "" ? "(empty level)" : plain(level)),
    streams > 1 ? el("span", { class: "note" }, plural(streams, "stream")) : null,
    el(
      "span", { class: "sums" }, share(messages, whole),
      el("span", { class: "messages" }, `${estimated ? "≈ " : ""}${count(messages)}`, el("span", { class: "unseen" }, " messages, ")), el("span", { class: "bytes" }, bytes(size)),
    ),
  ];
}

export function topicTable(rows) {
  return table("Topics", [
    { head: "Pattern", wide: true, cell: ({ pattern }) => name(pattern) },
    { head: "Messages", number: true, cell: ({ messages, estimated }) => `${estimated ? "≈ " : ""}${count(messages)}` },
    { head: "Size", number: true, cell: (one) => bytes(one.bytes) },
    { head: "Streams", number: true, cell: ({ streams }) => count(streams) },
  ], rows);
}

// ------------------------------------------------------------------------------------------------ what reading a filter costs

async function explain(place, filter, signal) {
  place.append(el("p", { class: "empty" }, "…"));
  let found;
  try {
    found = await get(path("topics", "explain"), { filter }, signal);
  } catch (error) {
    if (!signal.aborted) put(place, trouble(error));
    return;
  }
  if (signal.aborted) return;
  const { generations, matching, counted, streams, read, missing } = found;
  const touched = generations.filter((one) => one.read);
  const others = generations.length - touched.length;
  put(place, absent(missing), panel(
    "What reading it costs", el("span", {}, name(filter)),
    el(
      "dl", { class: "tiles", style: { "border-width": "1px 0", "border-radius": "0", "margin-bottom": "0" } },
      tile("Messages that match", `${counted ? "" : "≥ "}${brief(matching, 7)}`), tile("Streams to read", brief(read), `of ${brief(streams)}`),
      tile("Read as a whole", brief(sum(generations, "whole"))), tile("Read by index", brief(sum(generations, "by_index"))),
    ),
    touched.length ? table("Generations", [
      { head: "Generation", cell: ({ shard, generation }) => `${generation} of shard ${shard}` },
      { head: "Class", cell: ({ retention_class: of }) => of },
      { head: "Layout", cell: ({ layout }) => layout },
      { head: "Match", number: true, cell: (one) => `${one.counted ? "" : "≥ "}${count(one.matching)}` },
      { head: "Of messages", number: true, cell: ({ messages }) => count(messages) },
      { head: "Streams read", number: true, cell: (one) => `${count(one.read)} of ${count(one.streams)}` },
      { head: "By index", number: true, cell: (one) => count(one.by_index) },
    ], touched) : null,
    others ? el("p", { class: "pager" }, el("span", { class: "note" }, `${plural(others, "generation has", "generations have")} nothing that could match`)) : null,
  ));
  place.firstElementChild.style.setProperty("margin-bottom", "var(--gap)");
}

function sum(rows, key) {
  return rows.reduce((total, row) => total + row[key], 0);
}
