// The API key of this tab.  Without one the page only reads; what changes something appears when one with the scope `write` was given.
// It lies in the tab's session storage and goes with the tab.

import { openDialog } from "./dialog.js";
import { el } from "./dom.js";

const PLACE = "holdfast.key";
const RIGHT = "holdfast.right";
let told = () => {};

function kept(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return memory.get(name) ?? "";
  }
}

function keep(name, value) {
  memory.set(name, value);
  try {
    sessionStorage.setItem(name, value);
  } catch {
    // Storage is switched off: it is kept until the page goes.
  }
}
const memory = new Map();

export const bearer = () => kept(PLACE);
export const hasKey = () => kept(PLACE) !== "";
export const mayWrite = () => kept(RIGHT) === "write";

// `then` is told "", "read" or "write": now, and whenever it changes.
export function onKey(then) {
  told = () => {};
  then(kept(RIGHT), true);
  told = then;
}

export function forgetKey() {
  keep(PLACE, "");
  keep(RIGHT, "");
  told("");
}

// The broker does not know this key, or not any more.
export function refused(key) {
  if (key === bearer()) forgetKey();
}

export function askKey() {
  const input = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true });
  const wrong = el("p", { class: "wrong", role: "alert" });
  const body = [
    el("p", {}, "One with the scope write lets this tab disconnect clients and end sessions. ", el("code", {}, "holdfast api-keys add NAME --scope write"), " makes one. It is forgotten with the tab."),
    el("label", { for: "key" }, "KEY.SECRET"), input, wrong,
  ];
  openDialog("Give an API key", body, {
    word: "Use it", kind: "strong",
    act: async () => {
      wrong.textContent = "";
      const key = input.value.trim();
      const right = await scope(key);
      keep(PLACE, key);
      keep(RIGHT, right);
      told(right);
    },
    wrong: (error) => {
      wrong.textContent = error.message;
      input.focus();
    },
  });
}

// Asks for a change of something that is not there: who may change things hears that, all others that they may not.
async function scope(key) {
  if (/[^\x21-\x7e]/.test(key)) throw new Error("A key has no such characters.");
  const answer = await fetch("/api/v5/ds/storages/-/replicas/-", { method: "PUT", headers: { Authorization: `Bearer ${key}` }, credentials: "omit" });
  if (answer.status === 404) return "write";
  if (answer.status === 403) return "read";
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.message ?? `The broker refused it (HTTP ${answer.status}).`);
}
