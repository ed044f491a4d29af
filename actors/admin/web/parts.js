// What several views have: heads, tables, pages, facts, states.

import { el } from "./dom.js";
import { plural } from "./words.js";

export function head(title, { note = null, crumb = null } = {}, ...more) {
  return el(
    "div", { class: "head" },
    crumb && el("p", { class: "crumb" }, el("a", { href: crumb[0] }, `‹ ${crumb[1]}`)),
    el("h1", {}, title), ...more, note && el("span", { class: "note" }, note),
  );
}

export function panel(title, note, ...body) {
  return el("section", { class: "panel" }, title && el("div", { class: "title" }, el("h2", {}, title), note && el("span", { class: "note" }, note)), ...body);
}

// columns: [{head, cell(row), number, wide, most, spare (left out where there is little room)}]; a cell gives text, an element, or nothing.
export function table(label, columns, rows) {
  return el(
    "table", { class: "table", "aria-label": label },
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: classes(column) }, column.head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((column) => el(
      "td", { "data-head": column.head, class: classes(column) }, cell(column.cell(row)),
    ))))),
  );
}

function classes(column) {
  return ["number", "wide", "most", "spare"].filter((one) => column[one]).join(" ") || null;
}

function cell(value) {
  return value === null || value === undefined || value === "" ? null : value;
}

export function facts(pairs) {
  const there = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, there.map(([word, value]) => el("div", {}, el("dt", {}, word), el("dd", {}, value))));
}

export function tile(word, figure, unit = "", note = "") {
  return el("div", { class: "tile" }, el("dt", {}, word), el("dd", {}, figure, unit && el("span", { class: "unit" }, unit)), note && el("dd", { class: "note" }, note));
}

export function state(kind, word) {
  return el("span", { class: `state ${kind}` }, word);
}

export function share(part, whole, kind = "") {
  const percent = whole > 0 ? Math.max(0, Math.min(100, (100 * part) / whole)) : 0;
  return el("span", { class: `share ${kind}`, "aria-hidden": "true" }, el("span", { style: { width: `${percent.toFixed(1)}%` } }));
}

export function empty(text) {
  return el("p", { class: "empty" }, text);
}

// Links of which one is the present one.
export function chips(label, entries, present) {
  return el("nav", { class: "chips", "aria-label": label }, entries.map(([word, href, key]) => el("a", { href, "aria-current": key === present ? "true" : null }, word)));
}

// Who did not answer: what they know is not shown.
export function absent(missing) {
  if (!missing?.length) return null;
  return el("div", { class: "notices" }, el("p", { class: "notice", role: "alert" }, `${missing.join(", ")} ${missing.length === 1 ? "does" : "do"} not answer: what only ${missing.length === 1 ? "it knows" : "they know"} is not shown.`));
}

// A way through pages that have cursors only: `trail` are the cursors of the pages before this one.
export class Trail {
  constructor() {
    this.cursors = [""];
  }

  get cursor() {
    return this.cursors[this.cursors.length - 1];
  }

  node(rows, next, what, moved) {
    const move = (change) => () => {
      change();
      moved();
    };
    const number = this.cursors.length;
    return el(
      "div", { class: "pager" },
      el("span", { class: "note" }, number === 1 && !next ? plural(rows, what) : `page ${number}, ${plural(rows, what)}`),
      el("button", { type: "button", "data-key": "first", disabled: number === 1, onclick: move(() => { this.cursors = [""]; }) }, "First"),
      el("button", { type: "button", "data-key": "before", disabled: number === 1, onclick: move(() => this.cursors.pop()) }, "Back"),
      el("button", { type: "button", "data-key": "next", disabled: !next, onclick: move(() => this.cursors.push(next)) }, "Next"),
    );
  }
}
