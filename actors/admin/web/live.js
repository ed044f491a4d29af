// A part of a view that is asked for again and again, and drawn when the answer is another one than before.

import { el, put } from "./dom.js";
import { askKey } from "./key.js";
import { poll } from "./poll.js";

export const OFTEN_MS = 5_000;
export const NOW_AND_THEN_MS = 15_000;
export const SELDOM_MS = 60_000;

// load(signal) asks, draw(answer) gives what is shown.  Returns a function that asks at once.
export function live(place, signal, everyMs, load, draw) {
  const wrong = el("div");
  const content = el("div", { "aria-busy": "true" }, el("p", { class: "empty" }, "…"));
  let shown = null;
  place.append(wrong, content);
  return poll(everyMs, signal, async (stop) => {
    let found;
    try {
      found = await load(stop);
    } catch (error) {
      if (!stop.aborted) put(wrong, trouble(error));
      throw error;
    }
    if (stop.aborted) return;
    put(wrong);
    const text = JSON.stringify(found);
    // Whoever marks something to copy it keeps it.
    if (text === shown || marking(content)) return;
    shown = text;
    put(content, draw(found));
    content.removeAttribute("aria-busy");
  });
}

export function trouble(error) {
  const key = error.status === 401 ? el("button", { type: "button", onclick: askKey }, "Give a key") : null;
  const text = error.told ? error.message : "This page met something that it did not expect; the console of the browser has it.";
  return el("div", { class: "notices" }, el("p", { class: "notice bad", role: "alert" }, text, key && " ", key));
}

function marking(node) {
  const marked = getSelection();
  return marked !== null && !marked.isCollapsed && node.contains(marked.anchorNode);
}
